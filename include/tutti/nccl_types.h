/* nccl_types.h: the types, constants and struct layouts of the NCCL interface, in C99.
 *
 * A compiled program carries these values and layouts in it, so they are facts that Tutti has to
 * share with NCCL and never changes: what has been added since is at the end of its struct or enum.
 * Up to NCCL 2.31. Knows no function and no CUDA header. */
#ifndef TUTTI_NCCL_TYPES_H
#define TUTTI_NCCL_TYPES_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* CUDA's own headers define this type in the same way; whichever comes second must not repeat it in
 * C99, and may in C++. */
#if !defined(__DRIVER_TYPES_H__)
typedef struct CUstream_st* cudaStream_t;
#endif

/* The version is that of the newest interface whose device-side structs Tutti's layouts agree with:
 * a program that asks `NCCL_VERSION_CODE >= ...` decides by it what it may lay out by itself and
 * hand over. Functions and members that came later are declared here too. */
#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
/* A version as one number: four digits up to 2.8, five since. */
#define NCCL_VERSION(X, Y, Z) \
  (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

/* Defined by this header alone, so that a program can tell it from NCCL's. */
#define TUTTI_NCCL 1

/* A rank's end of a communicator. */
typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL

/* Memory that all ranks of a communicator have registered together. */
typedef struct ncclWindow_vidmem* ncclWindow_t;

/* What ranks meet by: made by one of them, given to the others by the program's own means. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* What a call came to. */
typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1, /* CUDA refused */
  ncclSystemError = 2,        /* the operating system refused */
  ncclInternalError = 3,      /* a bug of the library */
  ncclInvalidArgument = 4,    /* a value that cannot be */
  ncclInvalidUsage = 5,       /* a call that cannot be made here or now, or is not supported */
  ncclRemoteError = 6,        /* another rank or the network failed */
  ncclInProgress = 7,         /* a communicator that does not block is still at it */
  ncclTimeout = 8,            /* since 2.30 */
  ncclNumResults = 9
} ncclResult_t;

/* Members of a config that the caller leaves to the library. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f

/* The color of a rank that will not be in any part of a split communicator. */
#define NCCL_SPLIT_NOCOLOR -1

/* The second member of every struct that begins with its own size, but ncclSimInfo_t. */
#define NCCL_API_MAGIC 0xcafebeef

/* Flags of ncclCommWindowRegister. */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_GIN_ONLY 0x04
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* ncclConfig_t::CTAPolicy; hints about GPU kernels. */
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* Flags of ncclCommShrink: as the parent is, or after its operations have been ended. */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

/* Flags of ncclCommRevoke; there is no other yet. */
#define NCCL_REVOKE_DEFAULT 0x00

/* Flags of ncclCommSuspend. */
#define NCCL_SUSPEND_MEM 0x01

/* ncclConfig_t::hostCftMode. */
typedef enum {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
} ncclHostCftMode_t;

/* ncclConfig_t::nvlsHostMode; the bits may be joined. */
typedef enum {
  ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
  ncclNvlsHostModeEnable = 0,
  ncclNvlsHostModeDisableTransport = 1,
  ncclNvlsHostModeDisableSymmetricMultimem = 2,
  ncclNvlsHostModeDisable = INT_MAX
} ncclNvlsHostMode_t;

/* What a communicator shall be like. Begin with NCCL_CONFIG_INITIALIZER, which says how long the
 * struct was when the caller was compiled: Tutti reads as much of it as it knows and was given, so
 * that older (shorter) and newer (longer) ones are welcome. What only a GPU could heed is accepted
 * and has no effect. */
typedef struct ncclConfig_v23100 {
  size_t size;        /* sizeof of the caller's struct */
  unsigned int magic; /* NCCL_API_MAGIC */
  unsigned int version;
  int blocking;       /* 0: calls return at once, and ncclCommGetAsyncError says what became */
  int cgaClusterSize; /* GPU only */
  int minCTAs;        /* GPU only */
  int maxCTAs;        /* GPU only */
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName; /* for people: in texts about the communicator */
  int collnetEnable;
  int CTAPolicy; /* GPU only */
  int shrinkShare;
  int nvlsCTAs; /* GPU only */
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  /* 2.30 */
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
  /* 2.31 */
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;  /* ncclHostCftMode_t */
  int nvlsHostMode; /* ncclNvlsHostMode_t */
} ncclConfig_t;

/* A config of which the library decides everything. */
#define NCCL_CONFIG_INITIALIZER                                                     \
  {                                                                                 \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT,                                                      \
  }

/* One more wish about a collective, of a vendor's own; a list by `next`. Since 2.31. Tutti has none
 * of its own and passes over those of others. */
typedef struct ncclConfigExt {
  struct ncclConfigExt* next;
  struct {
    int vendorId;
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;

/* What one collective shall be like; see ncclAllReduceConfig. Since 2.31. Begin with
 * NCCL_COLLCONFIG_INITIALIZER. */
typedef struct ncclCollConfig_v23100 {
  size_t size;        /* sizeof of the caller's struct */
  unsigned int magic; /* NCCL_API_MAGIC */
  unsigned int version;
  ncclConfigExt_t* ext;
  int minCTAs;        /* GPU only */
  int maxCTAs;        /* GPU only */
  int nvlsCTAs;       /* GPU only */
  int cgaClusterSize; /* GPU only */
  const char* algSelection;
  int forceAlgSelection; /* 1: an algorithm that cannot be had is an error */
  int CTAPolicy;         /* GPU only */
  uint64_t userProfilerTag;
} ncclCollConfig_t;

/* A collective of which the library decides everything. */
#define NCCL_COLLCONFIG_INITIALIZER                                                     \
  {                                                                                     \
    sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_PTR, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,            \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, 1, NCCL_CONFIG_UNDEF_INT, 0,      \
  }

/* What ncclGroupSimulateEnd answers. */
typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds */
} ncclSimInfo_t;

/* A question not answered yet. */
#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

/* Which of a communicator's memory ncclCommMemStats is asked about. Since 2.29. */
typedef enum {
  ncclStatGpuMemSuspend = 0,   /* bytes that suspending would free */
  ncclStatGpuMemSuspended = 1, /* 1 while suspended, else 0 */
  ncclStatGpuMemPersist = 2,   /* bytes that suspending would not free */
  ncclStatGpuMemTotal = 3      /* both kinds, bytes */
} ncclCommMemStat_t;

/* How values are joined. Values of ncclNumOps and above are those that ncclRedOpCreatePreMulSum
 * made. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp =
      INT_MAX /* makes room in the enum for all of an int's values that are not below 0 */
} ncclRedOp_t;

/* What a buffer's elements are. */
typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

/* Where the scalar of ncclRedOpCreatePreMulSum is, and so when it is read: when a collective runs,
 * or before ncclRedOpCreatePreMulSum returns. */
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* How many signals to wait for, from whom. Since 2.29. */
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

/* One of the library's own settings. Since 2.30. */
typedef struct ncclParamHandle* ncclParamHandle_t;

#endif
