/// Products of many rows in f32, behind `Isa::panels`; included after kernels_impl.h's vector helpers.
/// The includer has defined, besides what kernels_impl.h asks for:
///   transpose(V v[LANES]): element j of vector i becomes element i of vector j;
///   PANEL_COLS: columns of a tile, whose PANEL_VECTORS · PANEL_COLS sums stay in registers.
/// No include guard: each includer needs its own copy.

constexpr int PANEL_VECTORS = 2;
constexpr int64_t PANEL_ROWS = PANEL_VECTORS * LANES;
/// 256 rows of a panel are half of a first-level cache or less. A constant: packed weights have this stride,
/// so that a tile needs one pointer for all its columns.
constexpr int64_t PANEL_K = 256;

/// LANES rows from `from` on, k .. k+count-1, as vectors of k; rows past `end` are zero.
inline void load_transposed(V v[LANES], const PackRows& p, int64_t from, int64_t k, int64_t count) {
  for (int i = 0; i < LANES; ++i) {
    if (from + i >= p.m) {
      v[i] = zero();
      continue;
    }
    const float* x = p.x + (p.x_rows != nullptr ? p.x_rows[from + i] : from + i) * p.x_stride + k;
    v[i] = count >= LANES ? load(x) : load_part(x, count);
  }
  transpose(v);
}

void pack_rows(const PackRows& p) {
  auto* panel = static_cast<float*>(p.panel);
  for (int half = 0; half < PANEL_VECTORS && half * LANES < p.m; ++half) {
    for (int64_t k = 0; k < p.k; k += LANES) {
      V v[LANES];
      load_transposed(v, p, half * LANES, k, p.k - k);
      for (int64_t j = 0; j < LANES && k + j < p.k; ++j)
        store(panel + (k + j) * PANEL_ROWS + half * LANES, v[j]);
    }
  }
}

template <typename W>
void pack_weights(void* packed, const void* w, int64_t stride, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; ++i) {
    map(
        k, static_cast<float*>(packed) + i * PANEL_K, [](V v) { return v; },
        static_cast<const W*>(w) + i * stride);
  }
}

template <int VECTORS, int COLS>
[[gnu::always_inline]] inline void panel_tile(const PanelProduct& p, int64_t n) {
  const auto* x = static_cast<const float*>(p.panel);
  const float* w = static_cast<const float*>(p.w) + n * PANEL_K;
  float* c = p.c + n * PANEL_ROWS;
  V sum[COLS][VECTORS];
  for (int j = 0; j < COLS; ++j) {
    for (int i = 0; i < VECTORS; ++i)
      sum[j][i] = p.accumulate ? load(c + j * PANEL_ROWS + i * LANES) : zero();
  }
  for (int64_t k = 0; k < p.k; ++k, x += PANEL_ROWS, ++w) {
    V xv[VECTORS];
    for (int i = 0; i < VECTORS; ++i) xv[i] = load(x + i * LANES);
    for (int j = 0; j < COLS; ++j) {
      const V wv = set1(w[j * PANEL_K]);
      for (int i = 0; i < VECTORS; ++i) sum[j][i] = madd(xv[i], wv, sum[j][i]);
    }
  }
  for (int j = 0; j < COLS; ++j) {
    for (int i = 0; i < VECTORS; ++i) store(c + j * PANEL_ROWS + i * LANES, sum[j][i]);
  }
}

/// The last, narrower tile: COLS or fewer columns.
template <int VECTORS, int COLS>
inline void panel_rest(const PanelProduct& p, int64_t n) {
  if constexpr (COLS > 0) {
    if (p.n - n == COLS) {
      panel_tile<VECTORS, COLS>(p, n);
    } else {
      panel_rest<VECTORS, COLS - 1>(p, n);
    }
  }
}

template <int VECTORS>
void panel_tiles(const PanelProduct& p) {
  int64_t n = 0;
  for (; n + PANEL_COLS <= p.n; n += PANEL_COLS) panel_tile<VECTORS, PANEL_COLS>(p, n);
  panel_rest<VECTORS, PANEL_COLS - 1>(p, n);
}

void panel_multiply(const PanelProduct& p) { p.m > LANES ? panel_tiles<2>(p) : panel_tiles<1>(p); }

void panel_hidden(const PanelHidden& h) {
  float* out = static_cast<float*>(h.panel) + h.first * PANEL_ROWS;
  const int64_t used = h.m > LANES ? PANEL_ROWS : LANES;
  for (int64_t at = 0; at < h.n * PANEL_ROWS; at += PANEL_ROWS) {
    for (int64_t i = at; i < at + used; i += LANES) {
      const V v = mul(vsilu(load(h.gate + i)), load(h.up + i));
      store(out + i, h.round ? rounded(v) : v);
    }
  }
}

/// y rows m .. m+LANES-1 (as far as there are any), columns n .. n+count-1
inline void unpack_block(const PanelResult& r, int64_t m, int64_t n, int64_t count) {
  V v[LANES];
  for (int j = 0; j < LANES; ++j) v[j] = j < count ? load(r.c + (n + j) * r.c_stride + m) : zero();
  transpose(v);
  for (int i = 0; i < LANES && m + i < r.m; ++i) {
    float* y = r.y + (m + i) * r.y_stride + n;
    if (count == LANES) {
      store(y, r.add ? add(load(y), v[i]) : v[i]);
    } else {
      store_part(y, r.add ? add(load_part(y, count), v[i]) : v[i], count);
    }
  }
}

void unpack(const PanelResult& r) {
  for (int64_t m = 0; m < r.m; m += LANES) {
    for (int64_t n = 0; n < r.n; n += LANES) unpack_block(r, m, n, r.n - n < LANES ? r.n - n : LANES);
  }
}

constexpr PanelKernels make_panels() {
  return {.rows = PANEL_ROWS,
          .k_step = 1,
          .k_block = PANEL_K,
          .n_step = 1,
          .element = sizeof(float),
          .pack_rows = pack_rows,
          .pack_bf16 = pack_weights<Bf16>,
          .pack_f32 = pack_weights<Unaligned>,
          .multiply = panel_multiply,
          .hidden = panel_hidden};
}
