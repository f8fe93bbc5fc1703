// Activations in eight bits, as ggml's CPU backend makes them. ↔ ggml/src/ggml-cuda/quantize.cu,
// ggml/src/ggml-quants.c (quantize_row_q8_K)

struct Activations {
    const float * x;
    i8 * q;     // [rows, k]
    float * d;  // [rows, k / group]
    void * s;   // groups of 32: float, scale times sum of codes; of 256: short, sums of 16 codes
    Strided x_at;
    int k;
    int n_groups;  // in all rows
};

// One warp a group of 32: the largest becomes 127; scale and sum are rounded to half floats.
// Block (32, warps), grid (n_groups / warps).
KERNEL quantize_32(Activations g) {
    int group = blockIdx.x * blockDim.y + threadIdx.y, per_row = g.k / 32;
    if (group >= g.n_groups) return;
    i64 row = group / per_row;
    int column = group % per_row * 32 + threadIdx.x;
    float x = float_at(g.x, row_offset(g.x_at, row) + 4 * (i64) column);
    float most = warp_max(fabsf(x));
    float scale = most / 127.0f;
    float code = rintf(x * (most != 0.0f ? 127.0f / most : 0.0f));
    float sum = warp_sum(code);
    g.q[row * g.k + column] = (i8) code;
    if (threadIdx.x == 0) {
        g.d[group] = round_half(scale);
        ((float *) g.s)[group] = round_half(scale * sum);
    }
}

// One warp a group of 256, eight values a lane: the one furthest from zero becomes -127.
KERNEL quantize_256(Activations g) {
    int group = blockIdx.x * blockDim.y + threadIdx.y, per_row = g.k / 256;
    if (group >= g.n_groups) return;
    i64 row = group / per_row;
    int column = group % per_row * 256 + threadIdx.x * 8;
    const float * x = (const float *) ((const char *) g.x + row_offset(g.x_at, row)) + column;
    float size = fabsf(x[0]), most = x[0];
    for (int i = 1; i < 8; ++i) {
        if (fabsf(x[i]) > size) {
            size = fabsf(x[i]);
            most = x[i];
        }
    }
    int lane = threadIdx.x;  // of equals the first wins
    for (int step = WARP / 2; step > 0; step /= 2) {
        float other_size = __shfl_xor_sync(ALL_LANES, size, step);
        float other = __shfl_xor_sync(ALL_LANES, most, step);
        int other_lane = __shfl_xor_sync(ALL_LANES, lane, step);
        if (other_size > size || (other_size == size && other_lane < lane)) {
            size = other_size;
            most = other;
            lane = other_lane;
        }
    }
    float inverse = most != 0.0f ? -127.0f / most : 0.0f;
    int sum = 0;
    i8 * q = g.q + row * g.k + column;
    for (int i = 0; i < 8; ++i) {
        i8 code = (i8) fminf(rintf(x[i] * inverse), 127.0f);
        q[i] = code;
        sum += code;
    }
    sum += __shfl_xor_sync(ALL_LANES, sum, 1);  // two lanes hold 16
    if (threadIdx.x % 2 == 0) ((i16 *) g.s)[group * 16 + threadIdx.x / 2] = (i16) sum;
    if (threadIdx.x == 0) g.d[group] = most != 0.0f ? 1.0f / inverse : 0.0f;
}

struct Rounded {
    const i8 * q;
    const float * d;
    float * out;  // [rows, k]
    i64 n;
    int group;
};

// What the codes stand for: many columns are multiplied as floats, and give the same numbers.
KERNEL rounded_f32(Rounded g) {
    EACH(i, g.n) {
        int within;
        g.out[i] = g.d[divide(i, g.group, within)] * (float) g.q[i];
    }
}
