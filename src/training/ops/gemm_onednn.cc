// gemm_onednn.cc: products by oneDNN, for its bfloat16 on processors that multiply such numbers.
#include "training/ops/gemm_builtin.hpp"
#include "training/ops/gemm_libraries.hpp"

#if TUTTI_HAS_ONEDNN

#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <tuple>

// oneDNN's own threads are OpenMP's in most builds; each rank has one core of its own.
extern "C" __attribute__((weak)) void omp_set_num_threads(int count);

namespace tutti::training {
namespace {

dnnl::memory::data_type element_type(DataType type) {
  return type == DataType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// What a product is, but for its addresses.
dnnl::memory::desc description(const MatrixView& m) {
  const std::int64_t stride = std::max<std::int64_t>(1, m.stride);
  if (m.transposed) return {{m.columns, m.rows}, element_type(m.type), {1, stride}};
  return {{m.rows, m.columns}, element_type(m.type), {stride, 1}};
}

class OnednnGemm final : public Gemm {
 public:
  std::string_view name() const override { return "onednn"; }

  void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c,
                bool accumulate) const override {
    const Product p = checked_product(a, b, c, accumulate);
    if (p.rows == 0 || p.columns == 0) return;
    const bool theirs = a.type == DataType::float32 || a.type == DataType::bfloat16;
    if (p.depth == 0 || !theirs) return multiply_builtin(p);
    if (omp_set_num_threads) omp_set_num_threads(1);  // of this thread
    const dnnl::matmul product = primitive(p);
    if (!product) return multiply_builtin(p);
    const auto memory = [&](const MatrixView& m) {
      return dnnl::memory(description(m), engine_, m.data);
    };
    dnnl::stream stream(engine_);
    product.execute(
        stream,
        {{DNNL_ARG_SRC, memory(a)}, {DNNL_ARG_WEIGHTS, memory(b)}, {DNNL_ARG_DST, memory(c)}});
    stream.wait();
  }

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t,  // extents
                         std::int64_t, std::int64_t, std::int64_t,  // strides
                         bool, bool, bool, DataType, DataType>;

  // To plan a product takes longer than to compute a small one. A model has few shapes of them;
  // where there are many (mixtures of experts), all are forgotten now and then.
  dnnl::matmul primitive(const Product& p) const {
    constexpr std::size_t kMostPlans = 512;
    const Key key(p.rows, p.columns, p.depth, p.a.stride, p.b.stride, p.c.stride, p.a.transposed,
                  p.b.transposed, p.accumulate, p.a.type, p.c.type);
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    if (plans_.size() >= kMostPlans) plans_.clear();
    return plans_.emplace(key, plan(p)).first->second;
  }

  // Empty where oneDNN has none: it multiplies bfloat16 on processors with AVX-512 only.
  dnnl::matmul plan(const Product& p) const {
    dnnl::primitive_attr attributes;
    if (p.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc wish(description(p.a), description(p.b), description(p.c));
    constexpr bool kMayBeEmpty = true;
    const dnnl::matmul::primitive_desc found(wish, attributes, engine_, kMayBeEmpty);
    return found ? dnnl::matmul(found) : dnnl::matmul();
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  mutable std::mutex mutex_;
  mutable std::map<Key, dnnl::matmul> plans_;
};

}  // namespace

std::unique_ptr<Gemm> make_onednn_gemm() { return std::make_unique<OnednnGemm>(); }

bool onednn_is_quick_for_bfloat16() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

}  // namespace tutti::training

#else

namespace tutti::training {

std::unique_ptr<Gemm> make_onednn_gemm() { return nullptr; }
bool onednn_is_quick_for_bfloat16() { return false; }

}  // namespace tutti::training

#endif
