// device.cc: see device.hpp. Each difference between the versions is told once, in a function that
// asks for the table's type.
#include "transport/net_plugin/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "transport/net_plugin/library.hpp"

namespace tutti::transport::net_plugin {
namespace {

constexpr std::size_t kTextBytesMax = 256;
constexpr int kDevicesMax = 4096;

std::string bounded(const char* text) {
  return text == nullptr ? std::string() : std::string(text, ::strnlen(text, kTextBytesMax));
}

std::string_view name_of(abi::ReturnCode code) {
  constexpr std::string_view kNames[] = {
      "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
      "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  const auto index = static_cast<std::size_t>(code);
  return code >= 0 && index < std::size(kNames) ? kNames[index] : "an unknown code";
}

// Events of a profiler: there is none, and nobody is told.
abi::ReturnCode ignore_event(void**, int, void*, std::int64_t, void*) { return abi::kSuccess; }

template <typename Table>
constexpr bool kHasContext = std::is_same_v<Table, abi::NetV11>;
template <typename Table>
constexpr bool kHasParents = Table::kVersion >= 10;

template <typename Properties>
DeviceProperties read_properties(const Properties& from) {
  DeviceProperties properties;
  properties.name = bounded(from.name);
  properties.pci_path = bounded(from.pci_path);
  properties.host_memory = (from.pointers & abi::kHostPointers) != 0;
  properties.driven_by_host = from.device_type == abi::kDeviceTypeHost;
  properties.speed_mbps = std::max(0, from.speed_mbps);
  properties.connections_max = std::max(0, from.connections_max);
  properties.receives_max = std::max(0, from.receives_max);
  if constexpr (!std::is_same_v<Properties, abi::PropertiesV8>)
    properties.message_bytes_max = from.message_bytes_max;
  return properties;
}

// Why a device cannot serve; empty: it can.
std::string unfit(const DeviceProperties& properties) {
  if (!properties.host_memory) return "takes no host memory";
  if (!properties.driven_by_host) return "is driven by code on a GPU";
  if (properties.receives_max < 1) return "can receive nothing";
  if (properties.connections_max < 1) return "can have no connection";
  return {};
}

template <typename Table>
class TableDevice final : public Device {
 public:
  TableDevice(const Table& table, std::string name, int number, DeviceProperties properties,
              void* context, std::mutex& mutex)
      : table_(table),
        name_(std::move(name)),
        number_(number),
        properties_(std::move(properties)),
        context_(context),
        mutex_(mutex) {}
  TableDevice(const TableDevice&) = delete;
  TableDevice& operator=(const TableDevice&) = delete;
  ~TableDevice() override {
    if constexpr (kHasContext<Table>) {
      const std::lock_guard lock(mutex_);
      if (table_.finalize != nullptr) table_.finalize(context_);
    }
  }

  std::string_view plugin_name() const override { return name_; }
  int version() const override { return Table::kVersion; }
  const DeviceProperties& properties() const override { return properties_; }

  Status listen(Handle& handle, void*& listener) override {
    listener = nullptr;
    abi::ReturnCode code = abi::kSuccess;
    if constexpr (kHasContext<Table>)
      code = table_.listen(context_, number_, handle.bytes.data(), &listener);
    else
      code = table_.listen(number_, handle.bytes.data(), &listener);
    if (code == abi::kSuccess && listener == nullptr)
      return Status(StatusCode::system_error, fmt::format("listen of {} gave nothing", name_));
    return judge(code, "listen", listener);
  }

  Status connect(Handle& handle, void*& sender) override {
    sender = nullptr;
    abi::DeviceHandle* offload = nullptr;
    abi::ReturnCode code = abi::kSuccess;
    if constexpr (Table::kVersion == 10) {
      abi::CommunicatorSettings settings{abi::kUndefined};
      code = table_.connect(number_, &settings, handle.bytes.data(), &sender, &offload);
    } else if constexpr (kHasContext<Table>) {
      code = table_.connect(context_, number_, handle.bytes.data(), &sender, &offload);
    } else {
      code = table_.connect(number_, handle.bytes.data(), &sender, &offload);
    }
    return judge(code, "connect", sender);
  }

  Status accept(void* listener, void*& receiver) override {
    receiver = nullptr;
    abi::DeviceHandle* offload = nullptr;
    return judge(table_.accept(listener, &receiver, &offload), "accept", receiver);
  }

  Status register_memory(void* connection, void* data, std::size_t bytes,
                         void*& registration) override {
    registration = nullptr;
    return judge(table_.register_memory(connection, data, bytes, abi::kHostPointers, &registration),
                 "regMr", registration);
  }

  void deregister_memory(void* connection, void* registration) override {
    table_.deregister_memory(connection, registration);
  }

  Status send(void* sender, void* data, std::size_t bytes, void* registration,
              void*& request) override {
    request = nullptr;
    abi::ReturnCode code = abi::kSuccess;
    using Bytes = std::conditional_t<Table::kVersion == 8, int, std::size_t>;
    const auto length = static_cast<Bytes>(bytes);
    if constexpr (kHasParents<Table>)
      code = table_.send(sender, data, length, kTag, registration, nullptr, &request);
    else
      code = table_.send(sender, data, length, kTag, registration, &request);
    return judge(code, "isend", request);
  }

  Status receive(void* receiver, void* data, std::size_t bytes, void* registration,
                 void*& request) override {
    request = nullptr;
    int tag = kTag;
    std::conditional_t<Table::kVersion == 8, int, std::size_t> length{};
    length = static_cast<decltype(length)>(bytes);
    abi::ReturnCode code = abi::kSuccess;
    if constexpr (kHasParents<Table>) {
      void* parent = nullptr;
      code = table_.receive(receiver, 1, &data, &length, &tag, &registration, &parent, &request);
    } else {
      code = table_.receive(receiver, 1, &data, &length, &tag, &registration, &request);
    }
    return judge(code, "irecv", request);
  }

  Status test(void* request, std::size_t bytes_max, bool& done, std::size_t& bytes) override {
    int finished = 0;
    int count = 0;
    const Status status = judge(table_.test(request, &finished, &count), "test");
    if (!status.ok()) return status;
    done = finished != 0;
    if (!done) return Status();
    if (count < 0 || static_cast<std::size_t>(count) > bytes_max)
      return Status(StatusCode::corrupt_data,
                    fmt::format("test of {} says that {} bytes came where at most {} can", name_,
                                count, bytes_max));
    bytes = static_cast<std::size_t>(count);
    return Status();
  }

  void close_sender(void* sender) override { table_.close_sender(sender); }
  void close_receiver(void* receiver) override { table_.close_receiver(receiver); }
  void close_listener(void* listener) override { table_.close_listener(listener); }

 private:
  // Messages of a connection arrive in order: their tags need not tell them apart.
  static constexpr int kTag = 0;

  Status judge(abi::ReturnCode code, std::string_view function) const {
    if (code == abi::kSuccess) [[likely]]
      return Status();
    return Status(StatusCode::system_error,
                  fmt::format("{} of {} returned {} ({})", function, name_, code, name_of(code)));
  }
  // What a call that failed has put there is nothing, whatever it looks like.
  Status judge(abi::ReturnCode code, std::string_view function, void*& made) const {
    if (code != abi::kSuccess) made = nullptr;
    return judge(code, function);
  }

  const Table& table_;  // the library's, which stays loaded
  std::string name_;
  int number_;
  DeviceProperties properties_;
  void* context_;  // of version 11
  std::mutex& mutex_;
};

template <typename Table>
class TableInterface final : public Interface {
 public:
  explicit TableInterface(const Table& table) : table_(table), name_(bounded(table.name)) {
    if (name_.empty()) name_ = "a plugin without a name";
  }

  int version() const override { return Table::kVersion; }

  Result<std::unique_ptr<Device>> open(std::uint64_t communicator, int turn) override {
    const std::lock_guard lock(mutex_);
    TUTTI_TRY(check_table());
    void* context = nullptr;
    TUTTI_TRY(initialise(communicator, context));
    auto made = choose(turn, context);
    if constexpr (kHasContext<Table>)
      if (!made.ok() && table_.finalize != nullptr) table_.finalize(context);
    return made;
  }

 private:
  Status check_table() const {
    const bool whole = table_.init != nullptr && table_.devices != nullptr &&
                       table_.properties != nullptr && table_.listen != nullptr &&
                       table_.connect != nullptr && table_.accept != nullptr &&
                       table_.register_memory != nullptr && table_.deregister_memory != nullptr &&
                       table_.send != nullptr && table_.receive != nullptr &&
                       table_.test != nullptr && table_.close_sender != nullptr &&
                       table_.close_receiver != nullptr && table_.close_listener != nullptr;
    if (whole) return Status();
    return refuse("leaves out functions that everybody needs");
  }

  // With a context for each communicator in version 11, and before that once for all.
  Status initialise(std::uint64_t communicator, void*& context) {
    abi::ReturnCode code = abi::kSuccess;
    if constexpr (kHasContext<Table>) {
      abi::CommunicatorSettings settings{abi::kUndefined};
      code = table_.init(&context, communicator, &settings, logger(), ignore_event);
    } else if (!initialised_) {
      if constexpr (Table::kVersion == 10)
        code = table_.init(logger(), ignore_event);
      else
        code = table_.init(logger());
      initialised_ = code == abi::kSuccess;
    }
    if (code == abi::kSuccess) return Status();
    return refuse(fmt::format("cannot be initialised: {} ({})", code, name_of(code)));
  }

  // The devices that can serve are taken in turn, so that ranks of a host share them.
  Result<std::unique_ptr<Device>> choose(int turn, void* context) {
    int count = 0;
    if (const auto code = table_.devices(&count); code != abi::kSuccess)
      return refuse(fmt::format("cannot say its devices: {} ({})", code, name_of(code)));
    if (count <= 0 || count > kDevicesMax) return refuse(fmt::format("has {} devices", count));
    std::vector<std::pair<int, DeviceProperties>> fit;
    std::string why;
    for (int number = 0; number < count; ++number) {
      typename Table::Properties raw{};
      if (table_.properties(number, &raw) != abi::kSuccess) {
        why = fmt::format("its device {} does not say what it is", number);
        continue;
      }
      DeviceProperties properties = read_properties(raw);
      const std::string reason = unfit(properties);
      if (reason.empty())
        fit.emplace_back(number, std::move(properties));
      else
        why = fmt::format("its device {} {}", number, reason);
    }
    if (fit.empty()) return refuse(why);
    const auto& [number, properties] = fit[static_cast<std::size_t>(turn) % fit.size()];
    return std::unique_ptr<Device>(
        std::make_unique<TableDevice<Table>>(table_, name_, number, properties, context, mutex_));
  }

  Status refuse(std::string_view why) const {
    return Status(StatusCode::unsupported, fmt::format("{}: {}", name_, why));
  }

  const Table& table_;
  std::string name_;
  std::mutex mutex_;  // plugins begin and end one at a time
  bool initialised_ = false;
};

template <typename Table>
std::unique_ptr<Interface> interface_of(void* library) {
  const void* symbol = find_symbol(library, Table::kSymbol);
  if (symbol == nullptr) return nullptr;
  return std::make_unique<TableInterface<Table>>(*static_cast<const Table*>(symbol));
}

}  // namespace

std::unique_ptr<Interface> find_interface(void* library) {
  if (auto found = interface_of<abi::NetV11>(library)) return found;
  if (auto found = interface_of<abi::NetV10>(library)) return found;
  if (auto found = interface_of<abi::NetV9>(library)) return found;
  return interface_of<abi::NetV8>(library);
}

}  // namespace tutti::transport::net_plugin
