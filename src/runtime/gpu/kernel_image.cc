// Takes the image in at assembly time: the build says where it is.
#include "runtime/gpu/kernel_image.hpp"

#if defined(TUTTI_KERNEL_IMAGE)
asm(R"(
  .section .rodata
  .balign 64
  .global tutti_kernel_image_begin
  .hidden tutti_kernel_image_begin
tutti_kernel_image_begin:
  .incbin ")" TUTTI_KERNEL_IMAGE R"("
  .global tutti_kernel_image_end
  .hidden tutti_kernel_image_end
tutti_kernel_image_end:
  .previous
)");
extern "C" {
extern const std::byte tutti_kernel_image_begin[];
extern const std::byte tutti_kernel_image_end[];
}
#endif

namespace tutti::runtime::gpu {

std::span<const std::byte> kernel_image() {
#if defined(TUTTI_KERNEL_IMAGE)
  return {tutti_kernel_image_begin, tutti_kernel_image_end};
#else
  return {};
#endif
}

const char* kernel_name(DataType reduced) {
  switch (reduced) {
    case DataType::int8:
      return "tutti_gpu_int8";
    case DataType::uint8:
      return "tutti_gpu_uint8";
    case DataType::int32:
      return "tutti_gpu_int32";
    case DataType::uint32:
      return "tutti_gpu_uint32";
    case DataType::int64:
      return "tutti_gpu_int64";
    case DataType::uint64:
      return "tutti_gpu_uint64";
    case DataType::float16:
      return "tutti_gpu_float16";
    case DataType::float32:
      return "tutti_gpu_float32";
    case DataType::float64:
      return "tutti_gpu_float64";
    case DataType::bfloat16:
      return "tutti_gpu_bfloat16";
    case DataType::float8_e4m3:
      return "tutti_gpu_float8_e4m3";
    case DataType::float8_e5m2:
      return "tutti_gpu_float8_e5m2";
  }
  return "";
}

const char* byte_kernel_name() { return "tutti_gpu_bytes"; }

const char* exchange_kernel_name() { return "tutti_gpu_exchange"; }

}  // namespace tutti::runtime::gpu
