// A device for torch that is not the CPU and needs no GPU. Its memory is the CPU's, and every kernel is the
// CPU's own; but where CUDA would refuse, it refuses, and fresh memory holds garbage. Whatever answers alike
// here and on the CPU leaves no tensor behind, writes all that it reads, and draws with the right generator.
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <set>

namespace {

const auto HERE = c10::DeviceType::PrivateUse1;     // the place that torch keeps for a device of one's own

bool here(const at::Tensor& t) { return t.defined() && t.device().type() == HERE; }

// -- memory: the CPU's, filled with bytes that are NaN in every float and -1 in every integer

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* p = n ? std::aligned_alloc(64, (n + 63) / 64 * 64) : nullptr;
    TORCH_CHECK(p || !n, "out of memory: ", n, " bytes");
    if (p) std::memset(p, 0xFF, n);
    return {p, p, &std::free, c10::Device(HERE, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
} memory;
REGISTER_ALLOCATOR(HERE, &memory);

// -- what torch asks of any device: there is one, it is number 0, and it never lags behind

struct Guard final : c10::impl::NoOpDeviceGuardImpl<HERE> {
  c10::Device exchangeDevice(c10::Device) const override { return {HERE, 0}; }
  c10::Device getDevice() const override { return {HERE, 0}; }
  c10::Stream getStream(c10::Device d) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};
const bool hooked = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

// -- making tensors, and copying from and to the CPU

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor on_cpu(const at::Tensor& t) {    // the same memory, called the CPU's
  if (!here(t)) return t;
  auto same = at::from_blob(t.data_ptr(), t.sizes(), t.strides(), at::TensorOptions(t.scalar_type()));
  same._set_conj(t.is_conj());
  same._set_neg(t.is_neg());
  return same;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  if (self.sizes() == size) return self;        // a view stays one: what is added to it in place comes back so
  auto* impl = self.unsafeGetTensorImpl();
  auto storage = impl->unsafe_storage();
  const size_t bytes = (impl->storage_offset() + c10::multiply_integers(size)) * self.element_size();
  if (bytes > storage.nbytes()) {
    auto larger = memory.allocate(bytes);
    if (storage.nbytes()) std::memcpy(larger.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(larger));
    storage.set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor& set(at::Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(size, stride);
  return self;
}

at::Tensor& set_whole(at::Tensor& self, at::Storage storage) {
  const int64_t count = storage.nbytes() / self.element_size();
  return set(self, std::move(storage), 0, {count}, {1});
}

// -- everything else: the CPU's kernel, once it is certain that CUDA would have run it

// A device's tensor may be indexed by numbers that lie on the CPU; nothing else mixes the two.
const std::set<std::string> INDEXING = {"aten::index_put_", "aten::_index_put_impl_"};

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().operator_name().name;
  const auto given = torch::jit::last(*stack, op.schema().arguments().size());
  bool ours = false, foreign_generator = false;
  std::string left_behind;
  auto look = [&](const c10::IValue& value, const std::string& argument) {
    if (!value.isTensor() || !value.toTensor().defined()) return;
    if (here(value.toTensor())) ours = true;
    else if (value.toTensor().dim()) left_behind += " " + argument;     // a single number may lie anywhere
  };
  for (size_t i = 0; i < given.size(); i++) {
    const auto& argument = op.schema().arguments()[i].name();
    look(given[i], argument);
    if (given[i].isList() && !(INDEXING.count(name) && argument == "indices"))
      for (const c10::IValue& value : given[i].toListRef()) look(value, argument);
    ours = ours || (given[i].isDevice() && given[i].toDevice().type() == HERE);
    foreign_generator = foreign_generator || given[i].isGenerator();    // this device has none to give
  }
  TORCH_CHECK(!ours || left_behind.empty(), name, ": Expected all tensors to be on the same device, but found"
              " these on the CPU:", left_behind);
  TORCH_CHECK(!ours || !foreign_generator, name, ": Expected a generator of the tensor's device, found the CPU's");
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// compute() copies all it is given to the CPU; a text that is looked up in may be larger than memory.
at::Tensor look_up(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  TORCH_CHECK(here(self), "aten::index: indices of a tensor on the CPU must be there too");
  c10::List<std::optional<at::Tensor>> places;
  for (const std::optional<at::Tensor>& place : indices)
    places.push_back(place ? std::optional<at::Tensor>(on_cpu(*place)) : std::nullopt);
  return at::index(on_cpu(self), places).to(self.device());
}

int64_t attention_kernel(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                         double, bool, std::optional<double>, bool) {
  return 0;     // attention as plain mathematics: this device has no kernel of its own for it
}

bool may_take_data_of(const at::Tensor&, const at::Tensor&) {
  return true;  // so that module.to(device) moves its parameters and makes no new ones, as with CUDA
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set);
  m.impl("set_.source_Storage", set_whole);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view));
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("index.Tensor", look_up);
  m.impl("_fused_sdp_choice", attention_kernel);
  m.impl("_has_compatible_shallow_copy_type", may_take_data_of);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

// torch.autocast multiplies matrices in half precision here, too; all else is as it is without it.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
}

// A conjugate that is not written out yet is written out by copying it, so copying has to see it as it is.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
