// Products with float matrices (f32, f16, bf16), and with the keys and values of attention.
// ↔ ggml/src/ggml-cuda/{mmvf,mmf}.cu

struct Product {
    const void * a;   // [k, n, heads / group, streams / group3]
    const float * b;  // [k, m, heads, streams]; with ids [k, 1 or used, tokens]
    float * out;      // [n, m, heads, streams], contiguous; with ids [n, used, tokens]
    const int * ids;  // null, or which matrix of a each of [used, tokens] takes
    i64 a_nb[4];
    i64 b_nb[4];
    i64 ids_nb;  // bytes from token to token
    int k;
    int n;
    int m;
    int step;  // values of out from column to column: n, or more
    int heads;
    int group;
    int group3;
    int used;
    int b_rows;  // with ids: 1, or used
    int adds;    // tiles only: the result is added to what is there
};

struct F32 {
    static const int SIZE = 4;
    DEVICE_MEMBER float get(const void * p) { return *(const float *) p; }
};

struct F16 {
    static const int SIZE = 2;
    DEVICE_MEMBER float get(const void * p) { return half_to_float(*(const u16 *) p); }
};

struct BF16 {
    static const int SIZE = 2;
    DEVICE_MEMBER float get(const void * p) { return bf16_to_float(*(const u16 *) p); }
};

// Few columns: one warp a row of a, block (32, warps); grid (rows / warps, heads, streams), with
// ids (rows / warps, used * tokens, 1).
template <typename T, int COLUMNS>
DEVICE void product_of_row(const Product & g) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= g.n) return;  // a whole warp at a time
    const char * a = (const char *) g.a + row * g.a_nb[1];
    const char * b = (const char *) g.b;
    float * out = g.out + row;
    if (g.ids) {
        int slot = blockIdx.y % g.used, token = blockIdx.y / g.used;
        a += ((const int *) ((const char *) g.ids + token * g.ids_nb))[slot] * g.a_nb[2];
        b += slot % g.b_rows * g.b_nb[1] + token * g.b_nb[2];
        out += (i64) blockIdx.y * g.n;
    } else {
        a += blockIdx.y / g.group * g.a_nb[2] + blockIdx.z / g.group3 * g.a_nb[3];
        b += blockIdx.y * g.b_nb[2] + blockIdx.z * g.b_nb[3];
        out += ((i64) blockIdx.z * g.heads + blockIdx.y) * g.m * g.step;
    }
    float sum[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sum[c] = 0.0f;
    for (int i = threadIdx.x; i < g.k; i += WARP) {
        float x = T::get(a + (i64) i * T::SIZE);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            if (c < g.m) sum[c] += x * ((const float *) (b + c * g.b_nb[1]))[i];
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        if (c >= g.m) break;
        float all = warp_sum(sum[c]);
        if (threadIdx.x == 0) out[(i64) c * g.step] = all;
    }
}

// Many columns: tiles of 32 by 32, block (32, 8), grid (n / 32, m / 32, heads * streams). Any
// strides, a transposed matrix too.
#define TILE 32
template <typename T>
DEVICE void product_of_tiles(const Product & g) {
    __shared__ float a_tile[TILE][TILE + 1];
    __shared__ float b_tile[TILE][TILE + 1];
    int head = blockIdx.z % g.heads, stream = blockIdx.z / g.heads;
    const char * a = (const char *) g.a + head / g.group * g.a_nb[2] + stream / g.group3 * g.a_nb[3];
    const char * b = (const char *) g.b + head * g.b_nb[2] + stream * g.b_nb[3];
    float * out = g.out + (i64) blockIdx.z * g.m * g.step;
    int n0 = blockIdx.x * TILE, m0 = blockIdx.y * TILE;
    float sum[TILE / 8];
    for (int r = 0; r < TILE / 8; ++r) sum[r] = 0.0f;
    for (int k0 = 0; k0 < g.k; k0 += TILE) {
        int i = k0 + threadIdx.x;
        for (int r = threadIdx.y; r < TILE; r += 8) {
            bool a_in = i < g.k && n0 + r < g.n, b_in = i < g.k && m0 + r < g.m;
            a_tile[r][threadIdx.x] = a_in ? T::get(a + (n0 + r) * g.a_nb[1] + i * g.a_nb[0]) : 0.0f;
            b_tile[r][threadIdx.x] = b_in ? float_at(b, (m0 + r) * g.b_nb[1] + i * g.b_nb[0]) : 0.0f;
        }
        __syncthreads();
        for (int j = 0; j < TILE; ++j) {
            float x = a_tile[threadIdx.x][j];
            for (int r = 0; r < TILE / 8; ++r) sum[r] += x * b_tile[threadIdx.y + 8 * r][j];
        }
        __syncthreads();
    }
    for (int r = 0; r < TILE / 8; ++r) {
        int column = m0 + threadIdx.y + 8 * r, row = n0 + threadIdx.x;
        if (column >= g.m || row >= g.n) continue;
        float * at = out + (i64) column * g.step + row;
        *at = g.adds ? *at + sum[r] : sum[r];
    }
}

#define FLOAT_PRODUCTS(suffix, T) \
    KERNEL mul_vec_##suffix##_1(Product g) { product_of_row<T, 1>(g); } \
    KERNEL mul_vec_##suffix##_4(Product g) { product_of_row<T, 4>(g); } \
    KERNEL mul_vec_##suffix##_8(Product g) { product_of_row<T, 8>(g); } \
    KERNEL mul_tile_##suffix(Product g) { product_of_tiles<T>(g); }

FLOAT_PRODUCTS(f32, F32)
FLOAT_PRODUCTS(f16, F16)
FLOAT_PRODUCTS(bf16, BF16)
