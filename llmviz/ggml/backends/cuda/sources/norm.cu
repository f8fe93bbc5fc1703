// Norms and sums over rows: one block of threads a row. ↔ ggml/src/ggml-cuda/{norm,sumrows}.cu

struct Norm {
    const float * x;
    float * out;           // contiguous
    const float * weight;  // null, or what the result is multiplied by: one row for all
    Strided x_at;
    int n;  // values in a row
    float eps;
};

KERNEL rms_norm_f32(Norm g) {
    __shared__ float scratch[WARP];
    i64 row = blockIdx.x;
    const float * x = (const float *) ((const char *) g.x + row_offset(g.x_at, row));
    float * out = g.out + row * g.n;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < g.n; i += blockDim.x) sum += x[i] * x[i];
    sum = block_sum(sum, scratch);
    float scale = 1.0f / sqrtf(sum / g.n + g.eps);
    if (g.weight) {
        for (int i = threadIdx.x; i < g.n; i += blockDim.x) out[i] = x[i] * scale * g.weight[i];
    } else {
        for (int i = threadIdx.x; i < g.n; i += blockDim.x) out[i] = x[i] * scale;
    }
}

KERNEL norm_f32(Norm g) {
    __shared__ float scratch[WARP];
    i64 row = blockIdx.x;
    const float * x = (const float *) ((const char *) g.x + row_offset(g.x_at, row));
    float * out = g.out + row * g.n;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < g.n; i += blockDim.x) sum += x[i];
    float mean = block_sum(sum, scratch) / g.n;
    sum = 0.0f;
    for (int i = threadIdx.x; i < g.n; i += blockDim.x) sum += (x[i] - mean) * (x[i] - mean);
    sum = block_sum(sum, scratch);
    float scale = 1.0f / sqrtf(sum / g.n + g.eps);
    for (int i = threadIdx.x; i < g.n; i += blockDim.x) {
        float y = (x[i] - mean) * scale;
        out[i] = g.weight ? y * g.weight[i] : y;
    }
}

KERNEL sum_rows_f32(Norm g) {
    __shared__ float scratch[WARP];
    i64 row = blockIdx.x;
    const float * x = (const float *) ((const char *) g.x + row_offset(g.x_at, row));
    float sum = 0.0f;
    for (int i = threadIdx.x; i < g.n; i += blockDim.x) sum += x[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) g.out[row] = sum;
}
