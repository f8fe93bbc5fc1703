// Rows fetched, stored, copied, padded, joined, sorted. ↔ ggml/src/ggml-cuda/{getrows,set-rows,
// cpy,pad,concat,argsort,add-id}.cu

struct GetRows {
    const void * a;  // [k, n, matrices]
    const int * ids;  // [n_ids, matrices]
    float * out;     // [k, n_ids, matrices], contiguous
    Strided a_at;
    Strided ids_at;
    i64 n;  // values of the result
};

template <typename T>
DEVICE void get_rows(const GetRows & g) {
    EACH(i, g.n) {
        int column, j, m1;
        i64 which = divide(i, g.a_at.ne[0], column);
        int m2 = (int) divide(divide(which, g.ids_at.ne[0], j), g.ids_at.ne[1], m1);
        const char * at = (const char *) g.ids + j * g.ids_at.nb[0] + m1 * g.ids_at.nb[1];
        int row = *(const int *) (at + m2 * g.ids_at.nb[2]);
        i64 offset = row * g.a_at.nb[1] + m1 * g.a_at.nb[2] + m2 * g.a_at.nb[3];
        g.out[i] = T::get((const char *) g.a + offset + (i64) column * T::SIZE);
    }
}

KERNEL get_rows_f32(GetRows g) { get_rows<F32>(g); }
KERNEL get_rows_f16(GetRows g) { get_rows<F16>(g); }
KERNEL get_rows_bf16(GetRows g) { get_rows<BF16>(g); }

struct SetRows {
    const float * x;  // [k, n_ids]
    const void * ids;
    void * out;  // contiguous rows
    Strided x_at;
    i64 n;  // values of x
    int wide_ids;  // 64 bits each, else 32
};

DEVICE i64 id_at(const void * ids, int wide, i64 i) {
    return wide ? ((const i64 *) ids)[i] : (i64) ((const int *) ids)[i];
}

#define SET_ROWS(suffix, type, store) \
    KERNEL set_rows_##suffix(SetRows g) { \
        EACH(i, g.n) { \
            int k = g.x_at.ne[0], column; \
            i64 row = divide(i, k, column); \
            float x = float_at(g.x, row_offset(g.x_at, row) + column * g.x_at.nb[0]); \
            ((type *) g.out)[id_at(g.ids, g.wide_ids, row) * k + column] = store; \
        } \
    }

SET_ROWS(f32, float, x)
SET_ROWS(f16, u16, float_to_half(x))
SET_ROWS(bf16, u16, float_to_bf16(x))

struct Copy {
    const void * x;
    void * out;  // contiguous
    Strided x_at;
    i64 n;
};

#define COPY(bits, type) \
    KERNEL copy_##bits(Copy g) { \
        EACH(i, g.n) { \
            ((type *) g.out)[i] = *(const type *) ((const char *) g.x + offset_of(g.x_at, g.x_at.ne, i)); \
        } \
    }

COPY(16, u16)
COPY(32, u32)

struct Join {
    const float * a;
    const float * b;  // null: zeros
    float * out;      // contiguous
    Strided a_at;
    Strided b_at;
    i64 n;
    int width;  // of the result
};

KERNEL join_f32(Join g) {
    EACH(i, g.n) {
        int column, n_a = g.a_at.ne[0];
        i64 row = divide(i, g.width, column);
        if (column < n_a) {
            g.out[i] = float_at(g.a, row_offset(g.a_at, row) + column * g.a_at.nb[0]);
        } else if (g.b) {
            g.out[i] = float_at(g.b, row_offset(g.b_at, row) + (column - n_a) * g.b_at.nb[0]);
        } else {
            g.out[i] = 0.0f;
        }
    }
}

struct Order {
    const float * x;
    int * out;  // [n, rows]
    Strided x_at;
    int n;
};

// a comes before b: it is larger, or anything beside what is not a number
DEVICE bool before(float a, float b) { return a > b || (b != b && a == a); }

// Positions of a row's values, the largest first, of equals the earlier. Every thread counts how
// many come before its own: rows are a few experts long. One block of threads a row.
KERNEL argsort_f32(Order g) {
    i64 row = blockIdx.x;
    const float * x = (const float *) ((const char *) g.x + row_offset(g.x_at, row));
    for (int i = threadIdx.x; i < g.n; i += blockDim.x) {
        int rank = 0;
        for (int j = 0; j < g.n; ++j) {
            bool earlier = j < i && !before(x[i], x[j]);
            rank += before(x[j], x[i]) || earlier;
        }
        g.out[row * g.n + rank] = i;
    }
}

struct AddId {
    const float * a;  // [n, used, tokens]
    const float * b;  // rows, contiguous
    const int * ids;  // [used, tokens]
    float * out;      // contiguous
    Strided a_at;
    i64 ids_nb;
    i64 total;
};

KERNEL add_id_f32(AddId g) {
    EACH(i, g.total) {
        int n = g.a_at.ne[0], column, slot;
        i64 row = divide(i, n, column), token = divide(row, g.a_at.ne[1], slot);
        int id = ((const int *) ((const char *) g.ids + token * g.ids_nb))[slot];
        float a = float_at(g.a, row_offset(g.a_at, row) + column * g.a_at.nb[0]);
        g.out[i] = a + g.b[(i64) id * n + column];
    }
}
