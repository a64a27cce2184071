// qualifiers.hpp: the words of nvcc that code for both a processor and a GPU needs, and that other
// compilers do not know: where a function runs, and which loops become straight code (so that what
// they index lies in registers) or must not.
//
// The only macros of this folder.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__ __forceinline__
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_KEEP_LOOP _Pragma("unroll 1")
#else
#define TUTTI_HOST_DEVICE inline
#define TUTTI_UNROLL
#define TUTTI_KEEP_LOOP
#endif
