// Products with a file's own blocks, and blocks decoded. The last line of the source, added when
// it is compiled, says for which type. ↔ ggml/src/ggml-cuda/{mmvq,convert,getrows}.cu

struct BlockProduct {
    const u8 * w;     // [n_matrices, n, row_bytes]
    const i8 * q;     // [m, k]; with ids [tokens * b_rows, k]
    const float * d;  // see activations.cu
    const void * s;
    float * out;      // [m, n]; with ids [tokens, used, n]
    const int * ids;  // null, or which matrix each of [tokens, used] takes
    i64 row_bytes;
    i64 ids_nb;  // bytes from token to token
    int k;
    int n;
    int m;
    int used;
    int b_rows;  // with ids: 1, or used
};

DEVICE Beside32 beside(const BlockProduct & g, i64 column, int block, const Beside32 *) {
    i64 i = column * (g.k / 32) + block;
    Beside32 y = {(const int *) g.q + i * 8, g.d[i], ((const float *) g.s)[i]};
    return y;
}

DEVICE Beside256 beside(const BlockProduct & g, i64 column, int block, const Beside256 *) {
    i64 i = column * (g.k / 256) + block;
    Beside256 y = {(const int *) g.q + i * 64, g.d[i], (const i16 *) g.s + i * 16};
    return y;
}

// One warp a row, its lanes share the units of all blocks. Block (32, warps), grid (n / warps),
// with ids (n / warps, used * tokens).
template <typename T, int COLUMNS>
DEVICE void product_with_blocks(const BlockProduct & g) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= g.n) return;  // a whole warp at a time
    const u8 * w = g.w + row * g.row_bytes;
    float * out = g.out + row;
    i64 first = 0;
    if (g.ids) {
        int slot = blockIdx.y % g.used, token = blockIdx.y / g.used;
        int matrix = ((const int *) ((const char *) g.ids + token * g.ids_nb))[slot];
        w += (i64) matrix * g.n * g.row_bytes;
        first = (i64) token * g.b_rows + slot % g.b_rows;
        out += (i64) blockIdx.y * g.n;
    }
    float sum[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sum[c] = 0.0f;
    int n_units = g.k / T::VALUES * T::UNITS;
    for (int u = threadIdx.x; u < n_units; u += WARP) {
        int block = u / T::UNITS;
        const u8 * b = w + (i64) block * T::BYTES;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            if (c >= g.m) break;
            sum[c] += T::dot(b, u % T::UNITS, beside(g, first + c, block, (typename T::Beside *) 0));
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        if (c >= g.m) break;
        float all = warp_sum(sum[c]);
        if (threadIdx.x == 0) out[(i64) c * g.n] = all;
    }
}

struct Decode {
    const u8 * w;
    float * out;  // [n_rows, k]
    const int * ids;  // null, or which rows
    i64 row_bytes;
    i64 n;  // values in all
    int k;
};

template <typename T>
DEVICE void decode_rows(const Decode & g) {
    EACH(i, g.n) {
        int column;
        i64 row = divide(i, g.k, column);
        if (g.ids) row = g.ids[row];
        const u8 * b = g.w + row * g.row_bytes + (i64) (column / T::VALUES) * T::BYTES;
        g.out[i] = T::value(b, column % T::VALUES);
    }
}

// Weights without their block's minimum, and the minimums [n_rows, k / 32]: products with many
// columns multiply the two with codes and with sums, as `dot` does.
template <typename T>
DEVICE void decode_above(const Decode & g) {
    EACH(i, g.n) {
        int column;
        i64 row = divide(i, g.k, column);
        const u8 * b = g.w + row * g.row_bytes + (i64) (column / T::VALUES) * T::BYTES;
        g.out[i] = T::above(b, column % T::VALUES);
    }
}

template <typename T>
DEVICE void decode_minimums(const Decode & g) {
    EACH(i, g.n) {
        int block;
        i64 row = divide(i, g.k / T::VALUES, block);
        g.out[i] = T::minimum(g.w + row * g.row_bytes + (i64) block * T::BYTES);
    }
}

#define FOR_TYPE(T) \
    KERNEL mul_vec_##T##_1(BlockProduct g) { product_with_blocks<T, 1>(g); } \
    KERNEL mul_vec_##T##_4(BlockProduct g) { product_with_blocks<T, 4>(g); } \
    KERNEL mul_vec_##T##_8(BlockProduct g) { product_with_blocks<T, 8>(g); } \
    KERNEL decode_##T(Decode g) { decode_rows<T>(g); }

#define FOR_TYPE_WITH_MINIMUM(T) \
    FOR_TYPE(T) \
    KERNEL above_##T(Decode g) { decode_above<T>(g); } \
    KERNEL minimums_##T(Decode g) { decode_minimums<T>(g); }
