/*
 * The attention kernel (attention.h): one block per part of the keys, head and row. Keys go by in
 * tiles of TILE; the running maximum m, sum l and output are rescaled when the maximum grows
 * (online softmax), so one pass gives the output and the log-sum-exp m + ln l.
 *
 * Parts of the keys (n_split of them, cut evenly over what the row sees) leave (m, l, output)
 * behind, and are merged: m = max m_i, l = sum l_i e^(m_i - m), o = sum o_i e^(m_i - m) / l.
 *
 * With rounded probabilities (bfloat16) the normaliser must be known first: two passes over the
 * keys, the second with p = round(e^(s - m) / l).
 * Source of the online form: Milakov and Gimelshein 2018, arXiv:1805.02867.
 */
#include "engine/ops/kernel.cuh"

#include "engine/ops/cache_row.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define TILE 32
#define MOST_PARTS 8      /* of the keys */
#define MOST_PER_THREAD 4 /* channels of the output a thread holds: d_value up to 1024 */

/* What one row sees: n keys, key i at position(i). */
struct view {
    const float *keys, *values;
    assay_device_cache cache; /* of the keys; values lie in the same rows */
    const int32_t *selected;
    int sequence;
    int64_t key_stride, value_stride;
    int n, last;
    __device__ int position(int i) const
    {
        int at = selected ? selected[i] : i;
        return at >= 0 && at <= last ? at : -1;
    }
    __device__ int64_t row(int at) const
    {
        return cache_row(cache, sequence, at);
    }
};

static __device__ view view_of(const assay_device_attention &a, const assay_device_rows &rows,
                               int64_t t, int head)
{
    int32_t sequence = rows.sequences[t], position = rows.positions[t];
    int kv_head = a.heads_per_kv ? head / a.heads_per_kv : 0;
    view v;
    v.key_stride = a.keys.width;
    v.value_stride = a.values.width;
    v.last = a.last ? a.last[t] : position;
    v.selected = a.selected ? a.selected + t * a.n_selected : nullptr;
    v.n = sequence < 0 ? 0 : v.selected ? static_cast<int>(a.n_selected) : v.last + 1;
    if (v.n > position + 1) /* no more keys than positions: what follows is -1 */
        v.n = position + 1;
    v.cache = a.keys;
    v.sequence = sequence;
    v.keys = cache_floats(a.keys) + static_cast<int64_t>(kv_head) * a.d_key;
    v.values = cache_floats(a.values) + static_cast<int64_t>(kv_head) * a.d_value;
    return v;
}

/* Scores of keys from ... from + TILE - 1 to s[TILE]; -inf where there is none. */
static __device__ void score_tile(float *s, const float *q, const view &v, int from, int end,
                                  int d_key, float scale)
{
    int lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < TILE; i += WARPS) {
        int at = from + i < end ? v.position(from + i) : -1;
        float dot = 0;
        if (at >= 0) {
            const float *k = v.keys + v.row(at) * v.key_stride;
            for (int c = lane; c < d_key; c += 32)
                dot = fmaf(q[c], k[c], dot);
        }
        dot = kernel_warp_sum(dot);
        if (lane == 0)
            s[i] = at >= 0 ? dot * scale : -INFINITY;
    }
}

struct running {
    float m;
    double l;
};

/* Takes a tile in, a key to a lane, every warp the same: *p is e^(s - m) of this lane's key;
 * returns what older sums are multiplied with. NaN scores make everything NaN, as on the host. */
static __device__ float take(running *r, float *p, const float *s)
{
    static_assert(TILE == 32, "a lane has one key of a tile");
    float mine = s[threadIdx.x % 32];
    float most = __any_sync(0xFFFFFFFFu, isnan(mine)) ? NAN : kernel_warp_max(mine);
    float m = most > r->m || isnan(most) ? most : r->m;
    *p = 0.0f;
    if (m == -INFINITY)
        return 1.0f;
    float scale = r->m == -INFINITY ? 0.0f : expf(r->m - m);
    *p = mine == -INFINITY ? 0.0f : expf(mine - m);
    r->l = r->l * scale + kernel_warp_sum(static_cast<double>(*p));
    r->m = m;
    return scale;
}

static __device__ void add_values(float *acc, const float *p, const view &v, int from, int end,
                                  int d_value)
{
    for (int i = 0; i < TILE && from + i < end; i++) {
        int at = v.position(from + i);
        if (at < 0)
            continue;
        const float *value = v.values + v.row(at) * v.value_stride;
#pragma unroll
        for (int j = 0; j < MOST_PER_THREAD; j++) {
            int c = threadIdx.x + j * THREADS;
            if (c < d_value)
                acc[j] = fmaf(p[i], value[c], acc[j]);
        }
    }
}

static __device__ void load_query(float *q, const assay_rows &x, int64_t t, int head, int d_key)
{
    for (int c = threadIdx.x; c < d_key; c += THREADS)
        q[c] = x.at[t * x.stride + static_cast<int64_t>(head) * d_key + c];
    __syncthreads();
}

static __device__ void store(const assay_rows &o, const assay_rows &lse, const float *acc,
                             const running &r, int64_t t, int head, int d_value, bool normalised)
{
    double by = normalised || r.l == 0 ? 1 : 1 / r.l;
#pragma unroll
    for (int j = 0; j < MOST_PER_THREAD; j++) {
        int c = threadIdx.x + j * THREADS;
        if (c < d_value)
            o.at[t * o.stride + static_cast<int64_t>(head) * d_value + c] =
                r.m == -INFINITY ? 0.0f : static_cast<float>(acc[j] * by);
    }
    if (threadIdx.x == 0)
        lse.at[t * lse.stride + head] =
            r.m == -INFINITY ? -INFINITY : static_cast<float>(r.m + log(r.l));
}

static __global__ void __launch_bounds__(THREADS)
    attend(assay_rows o, assay_rows lse, assay_rows x, assay_device_rows rows,
           assay_device_attention a)
{
    kernel_begin();
    extern __shared__ float q[];
    __shared__ float s[TILE], p[TILE];
    int head = blockIdx.y, part = blockIdx.x;
    int64_t t = blockIdx.z;
    view v = view_of(a, rows, t, head);
    int per = (v.n + a.n_split - 1) / a.n_split, from = part * per;
    int end = from + per < v.n ? from + per : v.n;
    running r = {-INFINITY, 0};
    float acc[MOST_PER_THREAD] = {0};
    load_query(q, x, t, head, a.d_key);
    for (; from < end; from += TILE) {
        score_tile(s, q, v, from, end, a.d_key, static_cast<float>(a.scale));
        __syncthreads();
        float mine, scale = take(&r, &mine, s);
        if (threadIdx.x < TILE)
            p[threadIdx.x] = mine;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < MOST_PER_THREAD; j++)
            acc[j] *= scale;
        add_values(acc, p, v, from, end, a.d_value);
        __syncthreads();
    }
    if (a.n_split == 1) {
        store(o, lse, acc, r, t, head, a.d_value, false);
        return;
    }
    float *to = a.partial + ((t * a.n_head + head) * a.n_split + part) * (a.d_value + 2);
#pragma unroll
    for (int j = 0; j < MOST_PER_THREAD; j++)
        if (threadIdx.x + j * THREADS < a.d_value)
            to[2 + threadIdx.x + j * THREADS] = acc[j];
    if (threadIdx.x == 0) {
        to[0] = r.m;
        to[1] = static_cast<float>(r.l);
    }
}

static __global__ void merge_parts(assay_rows o, assay_rows lse, assay_device_attention a)
{
    kernel_begin();
    int head = blockIdx.x;
    int64_t t = blockIdx.y;
    const float *parts = a.partial + (t * a.n_head + head) * a.n_split * (a.d_value + 2);
    running r = {-INFINITY, 0};
    float acc[MOST_PER_THREAD] = {0}, m[MOST_PARTS], l[MOST_PARTS];
#pragma unroll
    for (int i = 0; i < MOST_PARTS; i++) {
        bool is_there = i < a.n_split;
        m[i] = is_there ? parts[i * (a.d_value + 2)] : -INFINITY;
        l[i] = is_there ? parts[i * (a.d_value + 2) + 1] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < MOST_PARTS; i++)
        r.m = m[i] > r.m || isnan(m[i]) ? m[i] : r.m;
#pragma unroll
    for (int i = 0; i < MOST_PARTS; i++) {
        if (r.m == -INFINITY || i >= a.n_split)
            continue;
        const float *part = parts + i * (a.d_value + 2) + 2;
        float by = m[i] == -INFINITY ? 0.0f : expf(m[i] - r.m);
        r.l += static_cast<double>(l[i]) * by;
#pragma unroll
        for (int j = 0; j < MOST_PER_THREAD; j++)
            if (static_cast<int>(threadIdx.x) + j * THREADS < a.d_value)
                acc[j] = fmaf(part[threadIdx.x + j * THREADS], by, acc[j]);
    }
    store(o, lse, acc, r, t, head, a.d_value, false);
}

static __global__ void __launch_bounds__(THREADS)
    attend_rounded(assay_rows o, assay_rows lse, assay_rows x, assay_device_rows rows,
                   assay_device_attention a)
{
    kernel_begin();
    extern __shared__ float q[];
    __shared__ float s[TILE], p[TILE];
    int head = blockIdx.y;
    int64_t t = blockIdx.z;
    view v = view_of(a, rows, t, head);
    running r = {-INFINITY, 0};
    float acc[MOST_PER_THREAD] = {0}, scale = static_cast<float>(a.scale);
    load_query(q, x, t, head, a.d_key);
    for (int from = 0; from < v.n; from += TILE) {
        score_tile(s, q, v, from, v.n, a.d_key, scale);
        __syncthreads();
        float unused;
        take(&r, &unused, s);
        __syncthreads();
    }
    for (int from = 0; from < v.n; from += TILE) {
        score_tile(s, q, v, from, v.n, a.d_key, scale);
        __syncthreads();
        if (threadIdx.x < TILE)
            p[threadIdx.x] =
                s[threadIdx.x] == -INFINITY
                    ? 0.0f
                    : kernel_round_bf16(static_cast<float>(expf(s[threadIdx.x] - r.m) / r.l));
        __syncthreads();
        add_values(acc, p, v, from, v.n, a.d_value);
        __syncthreads();
    }
    store(o, lse, acc, r, t, head, a.d_value, true);
}

extern "C" assay_status assay_device_attend(void *stream, assay_rows o, assay_rows lse,
                                            assay_rows q, const assay_device_rows *rows,
                                            const assay_device_attention *a)
{
    if (a->d_value > THREADS * MOST_PER_THREAD || a->d_key > 8192)
        return assay_fail(ASSAY_UNSUPPORTED, "values %d wide, at most %d on the device", a->d_value,
                          THREADS * MOST_PER_THREAD);
    ASSAY_BUG_IF(a->n_split > MOST_PARTS);
    size_t bytes = static_cast<size_t>(a->d_key) * sizeof(float);
    unsigned n = static_cast<unsigned>(rows->n), n_head = static_cast<unsigned>(a->n_head);
    if (a->round_probs)
        return kernel_launch("attention", stream, attend_rounded, dim3(1, n_head, n), THREADS,
                             bytes, o, lse, q, *rows, *a);
    dim3 grid(static_cast<unsigned>(a->n_split), n_head, n);
    ASSAY_TRY(
        kernel_launch("attention", stream, attend, grid, THREADS, bytes, o, lse, q, *rows, *a));
    if (a->n_split == 1)
        return ASSAY_OK;
    return kernel_launch("merge of attention", stream, merge_parts, dim3(n_head, n), THREADS, 0, o,
                         lse, *a);
}

/* Shifted by the log-sum-exp as it is kept, whose rounding the sum then takes out again. */
static __global__ void write_probs(float *probs, int64_t capacity, assay_rows lse, assay_rows x,
                                   assay_device_rows rows, assay_device_attention a)
{
    kernel_begin();
    extern __shared__ float q[];
    __shared__ double sums[WARPS];
    double sum = 0;
    int head = blockIdx.x, lane = threadIdx.x % 32;
    int64_t t = blockIdx.y;
    view v = view_of(a, rows, t, head);
    float *out = probs + (head * rows.n + t) * capacity;
    float l = lse.at[t * lse.stride + head];
    for (int64_t j = threadIdx.x; j < capacity; j += THREADS)
        out[j] = 0.0f;
    load_query(q, x, t, head, a.d_key);
    for (int i = threadIdx.x / 32; i < v.n; i += WARPS) {
        int at = v.position(i);
        float dot = 0;
        if (at < 0)
            continue;
        for (int c = lane; c < a.d_key; c += 32)
            dot = fmaf(q[c], v.keys[v.row(at) * v.key_stride + c], dot);
        dot = kernel_warp_sum(dot);
        float p = expf(dot * static_cast<float>(a.scale) - l);
        if (lane == 0) {
            out[at] = p;
            sum += p;
        }
    }
    if (lane == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += sums[i];
    for (int i = threadIdx.x; i < v.n; i += THREADS) {
        int at = v.position(i);
        if (at < 0)
            continue;
        float p = static_cast<float>(out[at] / sum);
        out[at] = a.round_probs ? kernel_round_bf16(p) : p;
    }
}

extern "C" assay_status assay_device_attend_probs(void *stream, float *probs, int64_t capacity,
                                                  assay_rows lse, assay_rows q,
                                                  const assay_device_rows *rows,
                                                  const assay_device_attention *a)
{
    dim3 grid(static_cast<unsigned>(a->n_head), static_cast<unsigned>(rows->n));
    size_t bytes = static_cast<size_t>(a->d_key) * sizeof(float);
    return kernel_launch("probabilities", stream, write_probs, grid, THREADS, bytes, probs,
                         capacity, lse, q, *rows, *a);
}

/* One block per row and head. The selection becomes a set of bits. */
static __global__ void softmax_rows(float *scores, int64_t n_keys, int64_t first_row,
                                    assay_rows lse, assay_device_rows rows, int n_head,
                                    const int32_t *selected, int64_t n_selected, float scale,
                                    bool round_probs)
{
    kernel_begin();
    extern __shared__ uint32_t seen[];
    __shared__ double sums[WARPS];
    __shared__ float maxima[WARPS];
    bool has_nan = false;
    int head = blockIdx.x % n_head, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t r = blockIdx.x / n_head, t = first_row + r;
    float *s = scores + static_cast<int64_t>(blockIdx.x) * n_keys;
    int last = rows.positions[t];
    int words = static_cast<int>((n_keys + 31) / 32);
    for (int i = threadIdx.x; i < words; i += THREADS)
        seen[i] = selected ? 0 : 0xFFFFFFFFu;
    __syncthreads();
    for (int64_t i = threadIdx.x; selected && i < n_selected; i += THREADS) {
        int32_t j = selected[t * n_selected + i];
        if (j >= 0 && j <= last && j < n_keys)
            atomicOr(&seen[j / 32], 1u << (j % 32));
    }
    __syncthreads();
    auto sees = [&](int64_t j) { return j <= last && (seen[j / 32] >> (j % 32) & 1); };
    float most = -INFINITY;
    for (int64_t j = threadIdx.x; j < n_keys; j += THREADS) {
        if (!sees(j))
            continue;
        s[j] *= scale;
        has_nan = has_nan || isnan(s[j]);
        most = fmaxf(most, s[j]);
    }
    most = kernel_warp_max(most);
    if (lane == 0)
        maxima[warp] = most;
    has_nan = __syncthreads_or(has_nan);
    for (int i = 0; i < WARPS; i++)
        most = fmaxf(most, maxima[i]);
    double sum = 0;
    for (int64_t j = threadIdx.x; j < n_keys; j += THREADS) {
        s[j] = !sees(j) ? 0.0f : has_nan ? NAN : expf(s[j] - most);
        sum += s[j];
    }
    sum = kernel_warp_sum(sum);
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += sums[i];
    for (int64_t j = threadIdx.x; j < n_keys; j += THREADS) {
        float p = sum == 0 ? 0.0f : static_cast<float>(s[j] / sum);
        s[j] = round_probs ? kernel_round_bf16(p) : p;
    }
    if (threadIdx.x == 0)
        lse.at[t * lse.stride + head] = sum == 0 ? -INFINITY : static_cast<float>(most + log(sum));
}

extern "C" assay_status assay_device_softmax(void *stream, float *scores, int64_t n, int64_t n_keys,
                                             int64_t first_row, assay_rows lse,
                                             const assay_device_rows *rows,
                                             const assay_device_attention *a)
{
    size_t bytes = static_cast<size_t>((n_keys + 31) / 32) * sizeof(uint32_t);
    return kernel_launch("softmax", stream, softmax_rows, static_cast<unsigned>(n * a->n_head),
                         THREADS, bytes, scores, n_keys, first_row, lse, *rows, a->n_head,
                         a->selected, a->n_selected, static_cast<float>(a->scale), a->round_probs);
}
