// A pretend CUDA device for a CPU-only torch.
//
// Its tensors are of type "cuda", but their memory is ordinary memory, and the CPU's kernels compute on
// aliases of them. What CUDA refuses is refused: tensors of two devices in one operation, a generator of
// another device, a generator's state that is not on the CPU. It counts operations, and the waits of the
// CPU for the device. It knows no cuDNN, no nccl, no streams, no limit of memory, and no speed.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

using at::IntArrayRef, at::Tensor;
using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::DispatchKey, c10::DispatchKeySet, c10::IValue;
using c10::Storage, c10::StorageImpl, c10::Stream;

namespace {

const Device GPU(DeviceType::CUDA, 0);
const DispatchKeySet KEYS(DispatchKey::CUDA);

// ---- What is counted --------------------------------------------------------------------------

std::mutex lock;
std::map<std::string, int64_t> waits;  // by their reason
int64_t operations = 0, uploads = 0, bytes_now = 0, bytes_peak = 0;

void operation() {
  std::lock_guard guard(lock);
  operations++;
}
void wait_for(const std::string& why) {
  std::lock_guard guard(lock);
  waits[why]++;
}
void took(int64_t bytes) {  // negative: gave back
  std::lock_guard guard(lock);
  bytes_now += bytes;
  bytes_peak = std::max(bytes_peak, bytes_now);
}
std::vector<int64_t> counts() {
  std::lock_guard guard(lock);
  int64_t all = 0;
  for (auto& [why, number] : waits) all += number;
  return {operations, all, uploads, bytes_now, bytes_peak};
}
std::string reasons() {
  std::lock_guard guard(lock);
  std::string text;
  for (auto& [why, number] : waits) text += why + " " + std::to_string(number) + "\n";
  return text;
}
void reset() {
  std::lock_guard guard(lock);
  operations = uploads = 0;
  bytes_peak = bytes_now;
  waits.clear();
}

// ---- Memory, the device, random numbers -------------------------------------------------------

struct Block {
  void* data;
  size_t bytes;
};
void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  took(-int64_t(block->bytes));
  std::free(block->data);
  delete block;
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes) {
      if (posix_memalign(&data, 64, bytes)) throw std::bad_alloc();
      std::memset(data, 0xA5, bytes);  // so that reading what was never written shows
    }
    took(bytes);
    return {data, new Block{data, bytes}, &free_block, GPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return GPU; }
  Device getDevice() const override { return GPU; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return Stream(Stream::DEFAULT, GPU); }
  Stream getDefaultStream(Device) const override { return Stream(Stream::DEFAULT, GPU); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const Stream&, DeviceIndex, c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(1);
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(DeviceIndex) const override {}
};

// A state of 16 bytes (seed, offset) on the CPU, as CUDA's own; each draw seeds a generator of the CPU.
struct Philox final : c10::GeneratorImpl {
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;

  Philox() : GeneratorImpl(GPU, KEYS) {}
  void set_current_seed(uint64_t seed) override { seed_ = seed, offset_ = 0; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);  // "RNG state must be a torch.ByteTensor": also if it is on a GPU
    TORCH_CHECK(state.numel() == 16, "RNG state is wrong size");
    auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    Tensor state = at::empty({16}, at::kByte);
    auto* bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  GeneratorImpl* clone_impl() const override {
    auto* copy = new Philox();
    copy->seed_ = seed_, copy->offset_ = offset_;
    return copy;
  }
  at::Generator draw() {
    uint64_t mixed = seed_ * 0x9E3779B97F4A7C15ull ^ (offset_ + 0x7F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    offset_ += 4;
    return at::detail::createCPUGenerator(mixed);
  }
};
const at::Generator& standard() {
  static at::Generator generator = at::make_generator<Philox>();
  return generator;
}

struct CUDAHooks final : at::CUDAHooksInterface {
  CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override { return standard(); }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::make_generator<Philox>(); }
  bool isPinnedPtr(const void*) const override { return false; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
};


// ---- One memory, seen from both sides ---------------------------------------------------------

Tensor over(c10::DataPtr data, size_t bytes, c10::Allocator* allocator, DispatchKeySet keys, const Tensor& like) {
  auto own = c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), bytes, std::move(data), allocator, /*resizable=*/true);
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(Storage(own), keys, like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return made;
}

// A CPU tensor over a device tensor's memory.
Tensor on_cpu(const Tensor& t) {
  c10::DataPtr data(const_cast<void*>(t.storage().data()), Device(DeviceType::CPU));
  return over(std::move(data), t.storage().nbytes(), c10::GetCPUAllocator(), DispatchKeySet(DispatchKey::CPU), t);
}

void drop(void* context) {
  auto* kept = static_cast<Tensor*>(context);
  took(-int64_t(kept->storage().nbytes()));
  delete kept;
}
// A device tensor that keeps a CPU tensor's memory.
Tensor on_gpu(const Tensor& cpu) {
  size_t bytes = cpu.storage().nbytes();
  took(bytes);
  c10::DataPtr data(const_cast<void*>(cpu.storage().data()), new Tensor(cpu), &drop, GPU);
  return over(std::move(data), bytes, &memory, KEYS, cpu);
}

// ---- Every operation --------------------------------------------------------------------------

using Names = std::set<std::string>;
// On a GPU these wait for their result, whose size depends on it.
const Names WAITING = {"aten::nonzero", "aten::masked_select", "aten::equal", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::multinomial", "aten::repeat_interleave", "aten::bincount", "aten::is_nonzero"};
// These take indices from the CPU, at the price of a copy; those that are a mask wait.
const Names INDEXING = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put",
    "aten::_unsafe_index", "aten::_unsafe_index_put"};
// Elementwise operations take a CPU tensor without dimensions; these do not.
const Names NO_CPU_NUMBER = {"aten::cat", "aten::stack", "aten::gather", "aten::scatter", "aten::scatter_",
    "aten::index_select", "aten::addmm", "aten::mm", "aten::bmm", "aten::convolution", "aten::nll_loss_forward",
    "aten::native_batch_norm", "aten::_fused_adam_", "aten::_fused_sgd_", "aten::masked_select", "aten::take"};

// What an argument or result becomes on the other side; a list may hold gaps.
template <typename F>
IValue mapped(const IValue& value, const F& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& t : value.toTensorVector()) list.push_back(f(t));
    return list;
  }
  if (value.isList() && value.toList().elementType()->str().find("Tensor") != std::string::npos) {
    c10::List<std::optional<Tensor>> list;
    for (const IValue& entry : value.toListRef())
      list.push_back(entry.isTensor() ? std::optional<Tensor>(f(entry.toTensor())) : std::nullopt);
    return list;
  }
  return value;
}

// The tensors of one call, and which CPU tensor stands for which.
struct Call {
  std::string name;
  bool has_gpu = false, first_on_gpu = false;
  std::vector<std::pair<Device, int64_t>> met = {};  // devices and dimensions
  std::map<c10::TensorImpl*, Tensor> aliases = {};   // by the original
  std::map<StorageImpl*, Tensor> originals = {};     // by the alias's storage

  Tensor meet(const Tensor& t) {
    if (!t.defined()) return t;
    if (met.empty()) first_on_gpu = t.is_cuda();
    met.emplace_back(t.device(), t.dim());
    has_gpu |= t.is_cuda();
    return t;
  }
  void check_devices() const {
    for (auto& [device, dimensions] : met) {
      if (!has_gpu || !device.is_cpu()) continue;
      if (INDEXING.count(name) && first_on_gpu) {
        wait_for("indices from the CPU");
        continue;
      }
      TORCH_CHECK(dimensions == 0 && !NO_CPU_NUMBER.count(name),
          "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (", name, ")");
    }
  }
  Tensor down(const Tensor& t) {
    if (!t.defined() || !t.is_cuda()) return t;
    auto [place, fresh] = aliases.try_emplace(t.unsafeGetTensorImpl());
    if (fresh) {
      place->second = on_cpu(t);
      originals.emplace(place->second.storage().unsafeGetStorageImpl(), t);
    }
    return place->second;
  }
  Tensor up(const Tensor& cpu) const {
    if (!cpu.defined() || cpu.is_cuda()) return cpu;
    auto found = originals.find(cpu.storage().unsafeGetStorageImpl());
    if (found == originals.end()) return on_gpu(cpu);
    return at::native::as_strided_tensorimpl(found->second, cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
  // A kernel may have given an output another size, or new memory.
  void follow(const Tensor& t) const {
    if (!t.defined() || !t.is_cuda()) return;
    const Tensor& alias = aliases.at(t.unsafeGetTensorImpl());
    if (alias.storage().data() != t.storage().data())
      t.unsafeGetTensorImpl()->set_storage_keep_dtype(on_gpu(alias).storage());
    if (alias.sizes() != t.sizes() || alias.strides() != t.strides())
      t.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
  }
};

bool is_mask(const Tensor& t) {
  return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte);
}
bool writes(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

// A generator of the CPU for one draw of the device's.
at::Generator drawn(const IValue& given, const Call& call) {
  at::Generator generator = given.isNone() ? standard() : given.toGenerator();
  auto type = generator.device().type();
  TORCH_CHECK(type == DeviceType::CUDA, "Expected a 'cuda' device type for generator but found '", type, "'");
  TORCH_CHECK(call.has_gpu, "Expected a 'cpu' device type for generator but found 'cuda'");
  return static_cast<Philox*>(generator.unsafeGetGeneratorImpl())->draw();
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto& returns = op.schema().returns();
  const size_t count = arguments.size(), begin = stack->size() - count;
  const std::vector<IValue> given(stack->begin() + begin, stack->end());

  Call call{op.schema().name()};
  for (const IValue& value : given) {
    mapped(value, [&](const Tensor& t) { return call.meet(t); });
    call.has_gpu |= value.isDevice() && value.toDevice().is_cuda();
  }
  call.check_devices();
  operation();
  if (WAITING.count(call.name)) wait_for(call.name);
  if (INDEXING.count(call.name)) {
    bool mask = false;
    mapped(given[1], [&](const Tensor& t) { return mask |= is_mask(t), t; });
    if (mask) wait_for(call.name + " by a mask");
  }

  for (size_t i = 0; i < count; i++) {
    IValue& value = (*stack)[begin + i];
    value = mapped(given[i], [&](const Tensor& t) { return call.down(t); });
    if (given[i].isDevice()) value = Device(DeviceType::CPU);
    if (arguments[i].type()->str().find("Generator") != std::string::npos) value = drawn(given[i], call);
  }
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);

  for (size_t i = 0; i < count; i++)
    if (writes(arguments[i])) mapped(given[i], [&](const Tensor& t) { return call.follow(t), t; });
  size_t next = 0;  // the argument to look at for the next result that is one
  for (size_t i = 0; i < returns.size(); i++) {
    IValue& value = (*stack)[stack->size() - returns.size() + i];
    if (!writes(returns[i])) {
      value = mapped(value, [&](const Tensor& t) { return call.up(t); });
      continue;
    }
    auto is_it = [&](const c10::Argument& a) {
      return writes(a) && a.alias_info()->beforeSets() == returns[i].alias_info()->beforeSets();
    };
    while (next < count && !is_it(arguments[next])) next++;
    if (next < count) value = given[next++];
  }
}

// ---- Operations that make, copy or reshape memory ---------------------------------------------

using Type = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Where = std::optional<Device>;
using Format = std::optional<at::MemoryFormat>;

Tensor empty(IntArrayRef size, Type type, Layout, Where, std::optional<bool> pinned, Format format) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  return at::detail::empty_generic(size, &memory, KEYS, c10::dtype_or_default(type), format);
}
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Type type, Layout, Where, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, KEYS, c10::dtype_or_default(type));
}
Tensor& copy_(Tensor& to, const Tensor& from, bool) {
  operation();
  if (to.is_cpu() && from.numel()) wait_for("copy to the CPU");
  if (from.is_cpu() && from.numel()) {
    std::lock_guard guard(lock);
    uploads++;
  }
  Tensor target = to.is_cuda() ? on_cpu(to) : to;
  target.copy_(from.is_cuda() ? on_cpu(from) : from.detach());
  return to;
}
Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  Tensor target = to;
  return copy_(target, from, non_blocking);
}
at::Scalar number(const Tensor& t) {
  operation();
  wait_for("a number for the CPU");
  return at::_local_scalar_dense(on_cpu(t));
}
const Tensor& resize_(const Tensor& t, IntArrayRef size, Format format) {
  at::native::resize_impl_cpu_(t.unsafeGetTensorImpl(), size, std::nullopt);
  if (format) t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return t;
}
Tensor& set_storage(Tensor& t, Storage storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  TORCH_CHECK(storage.device() == t.device(), "Attempted to set the storage of a tensor on device \"", t.device(),
      "\" to a storage on different device \"", storage.device(), "\"");
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  if (stride.size() == size.size())
    t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  else
    t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return t;
}
Tensor& set_whole(Tensor& t, Storage storage) {
  int64_t length = storage.nbytes() / t.dtype().itemsize();
  return set_storage(t, std::move(storage), 0, {length}, {});
}
Tensor& set_tensor(Tensor& t, const Tensor& other) {
  return set_storage(t, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}
Tensor reshape_alias(const Tensor& t, IntArrayRef size, IntArrayRef stride) {
  return at::native::as_strided_tensorimpl(t, size, stride, std::nullopt);
}

const bool has_allocator = [] {
  c10::SetAllocator(DeviceType::CUDA, &memory, 100);
  return true;
}();
}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_local_scalar_dense", TORCH_FN(number));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("set_.source_Storage", TORCH_FN(set_whole));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  // These have a kernel for all devices, which asks which one it is.
  for (const char* name : {"convolution", "convolution_backward", "convolution_overrideable"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY(pretend, m) {
  m.def("counts() -> int[]", counts);
  m.def("reasons() -> str", reasons);
  m.def("reset() -> ()", reset);
}
