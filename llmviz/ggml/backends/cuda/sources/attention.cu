// Softmax over scores, rotary positions. ↔ ggml/src/ggml-cuda/{softmax,rope}.cu

struct SoftMax {
    const float * x;
    const float * mask;    // null, or added: repeated over heads
    const float * slopes;  // null, or one factor of the mask for each head (ALiBi)
    const float * sinks;   // null, or one score for each head that gets no weight
    float * out;           // contiguous
    Strided x_at;
    Strided mask_at;
    float scale;
};

// One block of threads a row; x is [n, n_tokens, n_head, n_stream].
KERNEL soft_max_f32(SoftMax g) {
    __shared__ float scratch[WARP];
    i64 row = blockIdx.x;
    int n = g.x_at.ne[0];
    int token, head;
    i64 stream = divide(divide(row, g.x_at.ne[1], token), g.x_at.ne[2], head);
    const float * x = (const float *) ((const char *) g.x + row_offset(g.x_at, row));
    const float * mask = 0;
    if (g.mask) {
        mask = (const float *) ((const char *) g.mask + token * g.mask_at.nb[1]
                + head % g.mask_at.ne[2] * g.mask_at.nb[2]
                + stream % g.mask_at.ne[3] * g.mask_at.nb[3]);
    }
    float slope = g.slopes ? g.slopes[head] : 1.0f;
    float * out = g.out + row * n;
    float most = g.sinks ? g.sinks[head] : -INFINITE;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float score = x[i] * g.scale;
        if (mask) score += slope * mask[i];
        out[i] = score;  // each thread reads back only what it wrote
        most = fmaxf(most, score);
    }
    most = block_max(most, scratch);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float share = expf(out[i] - most);
        out[i] = share;
        sum += share;
    }
    sum = block_sum(sum, scratch);
    if (g.sinks) sum += expf(g.sinks[head] - most);
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = out[i] / sum;
}

struct Angles {
    const int * pos;        // [n_pos, n_tokens]; n_pos is 4 where pairs follow several positions
    const float * factors;  // null, or what each pair's angle is divided by
    const int * follows;    // null, or which position each pair follows
    const float * ramp;     // null, or how far each pair keeps its own angle (YaRN)
    float * cis;            // [n_tokens, half, 2]: cos, sin
    int n_tokens;
    int half;
    float theta_scale;
    float freq_scale;
    float mscale;
};

// One thread a token. An angle is multiplied on from pair to pair, as ggml's CPU does: the errors
// add up the same way, and at position 8000 an angle's last bit is a thousandth of a turn.
KERNEL rope_angles(Angles g) {
    EACH(t, g.n_tokens) {
        float theta[4];
        int n_pos = g.follows ? 4 : 1;
        for (int p = 0; p < n_pos; ++p) theta[p] = (float) g.pos[(i64) p * g.n_tokens + t];
        float * cis = g.cis + t * g.half * 2;
        for (int i = 0; i < g.half; ++i) {
            float own = theta[g.follows ? g.follows[i] : 0];
            if (g.factors) own = own / g.factors[i];
            float angle = __fmul_rn(own, g.freq_scale);
            if (g.ramp) {
                float r = g.ramp[i];
                angle = __fadd_rn(__fmul_rn(angle, 1.0f - r), __fmul_rn(own, r));
            }
            cis[2 * i] = cosf(angle) * g.mscale;
            cis[2 * i + 1] = sinf(angle) * g.mscale;
            for (int p = 0; p < n_pos; ++p) theta[p] = __fmul_rn(theta[p], g.theta_scale);
        }
    }
}

struct Rotate {
    const float * x;  // [width, n_head, n_tokens]
    const float * cis;
    float * out;  // contiguous
    Strided x_at;
    i64 n;      // values in all, halved and rounded up a row: one thread each
    int width;  // values of a head
    int half;   // pairs that are turned
    int apart;  // from one of a pair to the other: 1, or half
};

// One thread turns a pair, or copies two of the values behind.
KERNEL rope_rotate(Rotate g) {
    EACH(i, g.n) {
        int j, head;
        i64 row = divide(i, (g.width + 1) / 2, j);
        i64 token = divide(row, g.x_at.ne[1], head);
        const float * x = (const float *) ((const char *) g.x + row_offset(g.x_at, row));
        float * out = g.out + row * g.width;
        if (j >= g.half) {
            out[2 * j] = x[2 * j];
            if (2 * j + 1 < g.width) out[2 * j + 1] = x[2 * j + 1];
            continue;
        }
        const float * turn = g.cis + (token * g.half + j) * 2;
        int first = g.apart == 1 ? 2 * j : j;
        float a = x[first], b = x[first + g.apart];
        out[first] = __fadd_rn(__fmul_rn(a, turn[0]), -__fmul_rn(b, turn[1]));
        out[first + g.apart] = __fadd_rn(__fmul_rn(a, turn[1]), __fmul_rn(b, turn[0]));
    }
}
