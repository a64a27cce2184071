/* header_alone.c: Tutti's headers of NCCL's interface are C99 and C++ by themselves, and before and
 * after CUDA's own. To compile it is the test; see CMakeLists.txt. */
#if defined(CUDA_BEFORE)
#include <cuda_runtime.h>
#endif
#include <nccl.h>
#include <nccl_device.h>
/* Twice is once. */
#include <nccl.h>
#include <nccl_device.h>
#if defined(CUDA_AFTER)
#include <cuda_runtime.h>
#endif

typedef struct {
  ncclConfig_t config;
  ncclCollConfig_t wishes;
  ncclSimInfo_t estimate;
  ncclCommProperties_t properties;
  cudaStream_t stream;
} Everything;

Everything everything(void);

Everything everything(void) {
  const Everything made = {NCCL_CONFIG_INITIALIZER, NCCL_COLLCONFIG_INITIALIZER,
                           NCCL_SIM_INFO_INITIALIZER, NCCL_COMM_PROPERTIES_INITIALIZER, NULL};
  return made;
}
