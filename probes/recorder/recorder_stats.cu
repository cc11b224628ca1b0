/*
 * Statistics on the device (recorder.h): a block per chunk of a buffer; the last block of a buffer
 * to finish puts its chunks together, in order.
 */
#include "probes/recorder/stats_plain.cuh"

/* What is not finite: rare, in shared memory, so that the loop pays nothing for it. */
struct bad_tally {
    unsigned int nan, pos, neg, poison;
    unsigned long long first;
};

static __device__ void start(tally *t)
{
    *t = {0, 0, INFINITY, -INFINITY, 0, 0};
}

static __device__ __noinline__ void add_bad(bad_tally *bad, float x, int64_t i)
{
    if (isnan(x)) {
        atomicAdd(&bad->nan, 1);
        if ((__float_as_uint(x) & 0xFFF00000u) == 0x7FE00000u)
            atomicAdd(&bad->poison, 1);
    } else {
        atomicAdd(x > 0 ? &bad->pos : &bad->neg, 1);
    }
    atomicMin(&bad->first, static_cast<unsigned long long>(i));
}

static __device__ __forceinline__ void add_finite(tally *t, float x)
{
    double wide = x;
    t->sum += wide;
    t->squares = fma(wide, wide, t->squares);
    t->min = fminf(t->min, x);
    t->max = fmaxf(t->max, x);
    t->zero += x == 0;
}

static __device__ __forceinline__ bool is_bad(uint32_t bits)
{
    return (bits & 0x7F800000u) == 0x7F800000u;
}

static __device__ __forceinline__ void add_one(tally *t, bad_tally *bad, float x, int64_t i)
{
    if (is_bad(__float_as_uint(x)))
        add_bad(bad, x, i);
    else
        add_finite(t, x);
}

/* Elements i and i + 1, the second one only where it is below `to`; i is even. */
static __device__ __forceinline__ void add_two(tally *t, bad_tally *bad, float first, float second,
                                               int64_t i, int64_t to)
{
    t->checksum += word_term(first, i + 1 < to ? second : 0.0f, salt_of(i));
    add_one(t, bad, first, i);
    if (i + 1 < to)
        add_one(t, bad, second, i + 1);
}

/* Whole strides of the block, four loads under way; returns where this thread stopped. CAREFUL
 * counts zeros and what is not finite. */
template <bool CAREFUL>
static __device__ __forceinline__ int64_t add_strides(tally *t, bad_tally *bad, extremes *e,
                                                      const float *at, int64_t i, int64_t to)
{
    const int64_t step = 4 * STATS_THREADS;
    const uint64_t more = static_cast<uint64_t>(step / 2) * GOLDEN;
    uint64_t salt = salt_of(i);
    for (; i + 3 * step + 3 < to; i += 4 * step) {
        float4 v[4];
        load_four(v, at + i, step);
#pragma unroll
        for (int k = 0; k < 4; k++, salt += more) {
            int64_t here = i + k * step;
            if (CAREFUL) {
                add_two(t, bad, v[k].x, v[k].y, here, to);
                add_two(t, bad, v[k].z, v[k].w, here + 2, to);
            } else {
                add_plain(t, e, v[k], salt);
            }
        }
    }
    return i;
}

/* First as if all were finite and none zero; a thread that met one goes through its share again. A
 * sum of finite float32 values cannot leave float64, so it is finite exactly when they are. */
static __device__ __forceinline__ void add_dense(tally *t, bad_tally *bad, const float *at,
                                                 int64_t from, int64_t to)
{
    int64_t first = from + 4 * static_cast<int64_t>(threadIdx.x);
    extremes e = {INT32_MIN, INT32_MAX, 0, UINT32_MAX};
    int64_t i = add_strides<false>(t, bad, &e, at, first, to);
    if (!isfinite(t->sum) || has_zero(e)) {
        start(t);
        add_strides<true>(t, bad, &e, at, first, to);
    } else if (i > first) {
        t->min = least(e);
        t->max = greatest(e);
    }
    for (; i < to; i += 4 * STATS_THREADS)
        for (int64_t k = i; k < i + 4 && k < to; k += 2)
            add_two(t, bad, at[k], k + 1 < to ? at[k + 1] : 0.0f, k, to);
}

static __device__ __forceinline__ int64_t offset_of(const table_entry &e, int64_t width, int64_t i)
{
    return i / width * e.stride + i % width;
}

static __device__ __forceinline__ void add_id(tally *t, int32_t x)
{
    double wide = x;
    t->sum += wide;
    t->squares = fma(wide, wide, t->squares);
    t->min = fminf(t->min, static_cast<float>(x));
    t->max = fmaxf(t->max, static_cast<float>(x));
    t->zero += x == 0;
}

static __device__ __forceinline__ void add_strided(tally *t, bad_tally *bad, const table_entry &e,
                                                   int64_t width, int64_t from, int64_t to)
{
    for (int64_t i = from + 2 * static_cast<int64_t>(threadIdx.x); i < to; i += 2 * STATS_THREADS) {
        bool two = i + 1 < to;
        int64_t a = offset_of(e, width, i), b = two ? offset_of(e, width, i + 1) : a;
        const float *x = static_cast<const float *>(e.at);
        if (!e.is_ids) {
            add_two(t, bad, x[a], x[b], i, to);
            continue;
        }
        const int32_t *ids = static_cast<const int32_t *>(e.at);
        t->checksum += word_term(x[a], two ? x[b] : 0.0f, salt_of(i)); /* their bits */
        add_id(t, ids[a]);
        if (two)
            add_id(t, ids[b]);
    }
}

template <class T, class F> static __device__ T reduce(T *shared, T x, F join)
{
    for (int d = 16; d > 0; d >>= 1)
        x = join(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = shared[0];
    for (int i = 1; i < STATS_THREADS / 32; i++)
        x = join(x, shared[i]);
    return x;
}

struct plus {
    template <class T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};
struct smaller {
    template <class T> __device__ T operator()(T a, T b) const
    {
        return a < b ? a : b;
    }
};
struct larger {
    template <class T> __device__ T operator()(T a, T b) const
    {
        return a > b ? a : b;
    }
};

static __device__ void finish_chunk(device_stats *out, const tally &t, const bad_tally &bad,
                                    int64_t n)
{
    __shared__ double reals[STATS_THREADS / 32];
    __shared__ long long longs[STATS_THREADS / 32];
    __shared__ unsigned long long sums[STATS_THREADS / 32];
    device_stats s;
    s.stats.n = n > 0 ? n : 0;
    s.stats.mean = reduce(reals, t.sum, plus());
    s.stats.l2 = reduce(reals, t.squares, plus());
    s.stats.min = reduce(reals, static_cast<double>(t.min), smaller());
    s.stats.max = reduce(reals, static_cast<double>(t.max), larger());
    s.stats.checksum = reduce(sums, static_cast<unsigned long long>(t.checksum), plus());
    s.stats.n_zero = reduce(longs, static_cast<long long>(t.zero), plus());
    s.stats.n_nan = bad.nan; /* complete: reduce() has waited for all threads */
    s.stats.n_pos_inf = bad.pos;
    s.stats.n_neg_inf = bad.neg;
    s.stats.n_poison = bad.poison;
    s.first_bad = static_cast<int64_t>(bad.first);
    if (threadIdx.x == 0)
        *out = s;
}

/* Chunks of one buffer, in order; thread 0 adds up what each thread's share gave. */
static __device__ void put_together(device_stats *out, const device_stats *parts, int n)
{
    __shared__ device_stats shares[STATS_THREADS];
    int per = (n + STATS_THREADS - 1) / STATS_THREADS;
    device_stats s = {};
    s.stats.min = INFINITY;
    s.stats.max = -INFINITY;
    s.first_bad = INT64_MAX;
    auto add = [&s](const device_stats &p) {
        s.stats.n += p.stats.n;
        s.stats.n_nan += p.stats.n_nan;
        s.stats.n_pos_inf += p.stats.n_pos_inf;
        s.stats.n_neg_inf += p.stats.n_neg_inf;
        s.stats.n_zero += p.stats.n_zero;
        s.stats.n_poison += p.stats.n_poison;
        s.stats.min = p.stats.min < s.stats.min ? p.stats.min : s.stats.min;
        s.stats.max = p.stats.max > s.stats.max ? p.stats.max : s.stats.max;
        s.stats.mean += p.stats.mean;
        s.stats.l2 += p.stats.l2;
        s.stats.checksum += p.stats.checksum;
        s.first_bad = p.first_bad < s.first_bad ? p.first_bad : s.first_bad;
    };
    for (int i = static_cast<int>(threadIdx.x) * per;
         i < n && i < (static_cast<int>(threadIdx.x) + 1) * per; i++)
        add(parts[i]);
    shares[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    int used = (n + per - 1) / per;
    for (int i = 1; i < used; i++)
        add(shares[i]);
    int64_t finite = s.stats.n - s.stats.n_nan - s.stats.n_pos_inf - s.stats.n_neg_inf;
    s.stats.mean = finite ? s.stats.mean / static_cast<double>(finite) : 0;
    s.stats.l2 = sqrt(s.stats.l2);
    if (!finite)
        s.stats.min = s.stats.max = 0;
    if (s.first_bad == INT64_MAX)
        s.first_bad = -1;
    *out = s;
}

static __global__ void __launch_bounds__(STATS_THREADS)
    stats_of_all(device_stats *results, device_stats *partial, int *arrived,
                 const table_entry *entries, int n, const int32_t *counts, const int *step,
                 int ring)
{
    kernel_begin();
    __shared__ bool is_last;
    int chunk = static_cast<int>(blockIdx.x);
    int which = table_find(n, chunk, [entries](int i) { return entries[i].first_chunk; });
    table_entry e = entries[which];
    int64_t rows, width;
    table_shape(&rows, &width, e, counts);
    int64_t from = (chunk - e.first_chunk) * e.chunk, to = from + e.chunk;
    if (to > rows * width)
        to = rows * width;
    tally t;
    start(&t);
    __shared__ bad_tally bad;
    if (threadIdx.x == 0)
        bad = {0, 0, 0, 0, INT64_MAX};
    __syncthreads();
    bool dense = (e.stride == width || rows == 1) && !e.is_ids &&
                 reinterpret_cast<uintptr_t>(e.at) % 16 == 0;
    if (dense)
        add_dense(&t, &bad, static_cast<const float *>(e.at), from, to);
    else
        add_strided(&t, &bad, e, width, from, to);
    finish_chunk(&partial[chunk], t, bad, to - from);
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(&arrived[which], 1) == e.n_chunks - 1;
    }
    __syncthreads();
    if (!is_last)
        return;
    __threadfence();
    put_together(&results[static_cast<int64_t>(*step % ring) * n + which], partial + e.first_chunk,
                 e.n_chunks);
    if (threadIdx.x == 0)
        arrived[which] = 0;
}

assay_status device_stats_queue(void *stream, device_stats *results, device_stats *partial,
                                int *arrived, const table_entry *entries, int n, int n_chunks,
                                const int32_t *counts, const int *step, int ring)
{
    return kernel_launch("statistics", stream, stats_of_all, static_cast<unsigned>(n_chunks),
                         STATS_THREADS, 0, results, partial, arrived, entries, n, counts, step,
                         ring);
}
