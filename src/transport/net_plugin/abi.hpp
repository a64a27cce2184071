// abi.hpp: the tables of functions that NCCL's net plugins export, versions 8 to 11, as far as
// bytes and calls go. They let a network that speaks only to NCCL carry our frames.
//
// Layouts are facts and must stay as they are; the names of the fields are our own. Knows nothing
// of how plugins are found (plugin.hpp) or what we do with them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::transport::net_plugin::abi {

// What every function returns; 0 is success, the others are the values of ncclResult_t.
using ReturnCode = int;
inline constexpr ReturnCode kSuccess = 0;

// NCCL's levels of log lines.
enum LogLine : int { log_none, log_version, log_warn, log_info, log_abort, log_trace };
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
using ProfilerCallback = ReturnCode (*)(void** event, int type, void* parent,
                                        std::int64_t plugin_event, void* more);

inline constexpr std::size_t kHandleBytes = 128;
inline constexpr int kRequestsMax = 32;    // under way on one connection
inline constexpr int kHostPointers = 1;    // a bit of Properties*::pointers, and a type of memory
inline constexpr int kDeviceTypeHost = 0;  // the processor moves the data, not the device's code
inline constexpr int kVirtualDevicesMax = 4;
inline constexpr int kUndefined = -1;  // a field of CommunicatorSettings that nobody set

struct VirtualDevices {
  int count;
  int devices[kVirtualDevicesMax];
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointers;
  int registers_globally;
  int speed_mbps;
  int port;
  float latency_us;
  int connections_max;
  int receives_max;
  int device_type;
  int device_version;
};

struct PropertiesV9 {  // and version 10
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointers;
  int registers_globally;
  int must_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int connections_max;
  int receives_max;
  int device_type;
  int device_version;
  VirtualDevices made_of;
  std::size_t message_bytes_max;
  std::size_t collective_bytes_max;
};

struct PropertiesV11 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointers;
  int registers_globally;
  int must_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int connections_max;
  int receives_max;
  int device_type;
  int device_version;
  VirtualDevices made_of;
  std::size_t message_bytes_max;
  std::size_t collective_bytes_max;
  int multi_request_max;
};

// Versions 10 (of connect) and 11 (of init).
struct CommunicatorSettings {
  int traffic_class;
};

struct DeviceHandle;       // of networks that a GPU drives: never asked for
struct NetworkAttributes;  // hints of version 11: never given

// Functions that all versions share.
using Devices = ReturnCode (*)(int* count);
using Accept = ReturnCode (*)(void* listener, void** receiver, DeviceHandle** device);
using Register = ReturnCode (*)(void* connection, void* data, std::size_t bytes, int type,
                                void** registration);
using RegisterDmaBuffer = ReturnCode (*)(void* connection, void* data, std::size_t bytes, int type,
                                         std::uint64_t offset, int descriptor, void** registration);
using Deregister = ReturnCode (*)(void* connection, void* registration);
using Flush = ReturnCode (*)(void* receiver, int count, void** data, int* bytes,
                             void** registrations, void** request);
using Test = ReturnCode (*)(void* request, int* done, int* bytes);
using Close = ReturnCode (*)(void* connection);
using DeviceRegistration = ReturnCode (*)(void* connection, void* registration, void** pointer);
using Consumed = ReturnCode (*)(void* receiver, int count, void* request);
using MakeVirtualDevice = ReturnCode (*)(int* device, VirtualDevices* made_of);

struct NetV8 {
  static constexpr int kVersion = 8;
  static constexpr const char* kSymbol = "ncclNetPlugin_v8";
  using Properties = PropertiesV8;

  const char* name;
  ReturnCode (*init)(Logger logger);
  Devices devices;
  ReturnCode (*properties)(int device, PropertiesV8* properties);
  ReturnCode (*listen)(int device, void* handle, void** listener);
  ReturnCode (*connect)(int device, void* handle, void** sender, DeviceHandle** offload);
  Accept accept;
  Register register_memory;
  RegisterDmaBuffer register_dma_buffer;
  Deregister deregister_memory;
  ReturnCode (*send)(void* sender, void* data, int bytes, int tag, void* registration,
                     void** request);
  ReturnCode (*receive)(void* receiver, int count, void** data, int* bytes, int* tags,
                        void** registrations, void** request);
  Flush flush;
  Test test;
  Close close_sender;
  Close close_receiver;
  Close close_listener;
  DeviceRegistration device_registration;
  Consumed consumed;
};

struct NetV9 {
  static constexpr int kVersion = 9;
  static constexpr const char* kSymbol = "ncclNetPlugin_v9";
  using Properties = PropertiesV9;

  const char* name;
  ReturnCode (*init)(Logger logger);
  Devices devices;
  ReturnCode (*properties)(int device, PropertiesV9* properties);
  ReturnCode (*listen)(int device, void* handle, void** listener);
  ReturnCode (*connect)(int device, void* handle, void** sender, DeviceHandle** offload);
  Accept accept;
  Register register_memory;
  RegisterDmaBuffer register_dma_buffer;
  Deregister deregister_memory;
  ReturnCode (*send)(void* sender, void* data, std::size_t bytes, int tag, void* registration,
                     void** request);
  ReturnCode (*receive)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                        void** registrations, void** request);
  Flush flush;
  Test test;
  Close close_sender;
  Close close_receiver;
  Close close_listener;
  DeviceRegistration device_registration;
  Consumed consumed;
  MakeVirtualDevice make_virtual_device;
};

// `parent` of send and receive: events of a profiler, which we have none of.
struct NetV10 {
  static constexpr int kVersion = 10;
  static constexpr const char* kSymbol = "ncclNetPlugin_v10";
  using Properties = PropertiesV9;

  const char* name;
  ReturnCode (*init)(Logger logger, ProfilerCallback profiler);
  Devices devices;
  ReturnCode (*properties)(int device, PropertiesV9* properties);
  ReturnCode (*listen)(int device, void* handle, void** listener);
  ReturnCode (*connect)(int device, CommunicatorSettings* settings, void* handle, void** sender,
                        DeviceHandle** offload);
  Accept accept;
  Register register_memory;
  RegisterDmaBuffer register_dma_buffer;
  Deregister deregister_memory;
  ReturnCode (*send)(void* sender, void* data, std::size_t bytes, int tag, void* registration,
                     void* parent, void** request);
  ReturnCode (*receive)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                        void** registrations, void** parents, void** request);
  Flush flush;
  Test test;
  Close close_sender;
  Close close_receiver;
  Close close_listener;
  DeviceRegistration device_registration;
  Consumed consumed;
  MakeVirtualDevice make_virtual_device;
};

struct NetV11 {
  static constexpr int kVersion = 11;
  static constexpr const char* kSymbol = "ncclNetPlugin_v11";
  using Properties = PropertiesV11;

  const char* name;
  ReturnCode (*init)(void** context, std::uint64_t communicator, CommunicatorSettings* settings,
                     Logger logger, ProfilerCallback profiler);
  Devices devices;
  ReturnCode (*properties)(int device, PropertiesV11* properties);
  ReturnCode (*listen)(void* context, int device, void* handle, void** listener);
  ReturnCode (*connect)(void* context, int device, void* handle, void** sender,
                        DeviceHandle** offload);
  Accept accept;
  Register register_memory;
  RegisterDmaBuffer register_dma_buffer;
  Deregister deregister_memory;
  ReturnCode (*send)(void* sender, void* data, std::size_t bytes, int tag, void* registration,
                     void* parent, void** request);
  ReturnCode (*receive)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                        void** registrations, void** parents, void** request);
  Flush flush;
  Test test;
  Close close_sender;
  Close close_receiver;
  Close close_listener;
  DeviceRegistration device_registration;
  Consumed consumed;
  MakeVirtualDevice make_virtual_device;
  ReturnCode (*finalize)(void* context);
  ReturnCode (*set_attributes)(void* context, NetworkAttributes* attributes);
};

// A name and so many functions, without gaps.
static_assert(sizeof(NetV8) == 19 * sizeof(void*) && sizeof(NetV9) == 20 * sizeof(void*) &&
              sizeof(NetV10) == 20 * sizeof(void*) && sizeof(NetV11) == 22 * sizeof(void*));
static_assert(sizeof(PropertiesV8) == 64 && sizeof(PropertiesV9) == 104 &&
              sizeof(PropertiesV11) == 112);
static_assert(offsetof(PropertiesV8, speed_mbps) == 32 && offsetof(PropertiesV9, speed_mbps) == 36);
static_assert(offsetof(PropertiesV9, message_bytes_max) == 88);

}  // namespace tutti::transport::net_plugin::abi
