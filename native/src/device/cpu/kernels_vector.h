/// Helpers over V that every table and every set of panel kernels uses. The includer has defined V, LANES and
/// the operations that kernels_impl.h lists. No include guard: each includer needs its own copy.

/// The first `count` < LANES elements, the rest zero.
template <typename T>
inline V load_part(const T* p, int64_t count) {
  T part[LANES] = {};
  __builtin_memcpy(part, p, static_cast<unsigned long>(count) * sizeof(T));
  return load(part);
}

inline void store_part(float* p, V v, int64_t count) {
  float part[LANES];
  store(part, v);
  __builtin_memcpy(p, part, static_cast<unsigned long>(count) * sizeof(float));
}

/// e^x, about 1 ulp (Cephes' polynomial after a two-part reduction by ln 2); 0 below -87.3, e^88.37
/// above 88.37.
inline V vexp(V x) {
  const V clamped = vmax(set1(-87.3F), vmin(set1(88.37F), x));  // this order lets a NaN through
  const V magic = set1(12582912.0F);  // 1.5 * 2^23: adding it rounds to a whole number
  const V n = sub(madd(clamped, set1(1.44269504F), magic), magic);
  V r = madd(n, set1(-0.693359375F), clamped);
  r = madd(n, set1(2.12194440e-4F), r);
  V p = set1(1.9875691500e-4F);
  p = madd(p, r, set1(1.3981999507e-3F));
  p = madd(p, r, set1(8.3334519073e-3F));
  p = madd(p, r, set1(4.1665795894e-2F));
  p = madd(p, r, set1(1.6666665459e-1F));
  p = madd(p, r, set1(5.0000001201e-1F));
  p = add(madd(p, mul(r, r), r), set1(1.0F));
  return zero_below(x, set1(-87.3F), mul(p, power_of_two(n)));
}

inline V vsigmoid(V x) { return div(set1(1.0F), add(set1(1.0F), vexp(sub(zero(), x)))); }
inline V vsilu(V x) { return div(x, add(set1(1.0F), vexp(sub(zero(), x)))); }

/// y[i] = f(x0[i], x1[i], ...) for all i; outputs may be inputs.
template <typename F, typename... In>
inline void map(int64_t n, float* y, F f, const In*... in) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) store(y + i, f(load(in + i)...));
  if (i < n) store_part(y + i, f(load_part(in + i, n - i)...), n - i);
}
