# Says at the end of configuring what was found, and what is left out because it was not.
function(tutti_report found what without)
  if(${found})
    message(STATUS "  ${what}: found")
  else()
    message(STATUS "  ${what}: not found, ${without}")
  endif()
endfunction()

if(PROJECT_IS_TOP_LEVEL)
  set(kind static)
  if(BUILD_SHARED_LIBS)
    set(kind shared)
  endif()
  set(sanitizers "")
  if(TUTTI_SANITIZE)
    set(sanitizers ", sanitizer: ${TUTTI_SANITIZE}")
  endif()
  message(STATUS "Tutti ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, "
                 "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${kind}${sanitizers}")
  message(STATUS "  hwloc ${HWLOC_VERSION}, libsodium ${SODIUM_VERSION}, isa-l ${ISAL_VERSION}, "
                 "Highway ${hwy_VERSION}, fmt ${fmt_VERSION}, CLI11 ${CLI11_VERSION}, "
                 "nlohmann-json ${nlohmann_json_VERSION}")
  tutti_report(OPENBLAS_FOUND "OpenBLAS (matrices of float and double)" "our own GEMM is slower")
  tutti_report(TUTTI_DNNL_FOUND "oneDNN (matrices of bfloat16)" "our own GEMM is slower")
  tutti_report(UCX_FOUND "UCX (TUTTI_TRANSPORT=ucx)" "that transport is left out")
  tutti_report(benchmark_FOUND "google-benchmark (micro-benchmarks)" "they are not built")
  tutti_report(TUTTI_CUDA_FOUND "nvcc (GPU kernels for sm_80, sm_90, sm_100 and later)"
               "there are no GPU kernels")
  tutti_report(TUTTI_CCACHE "ccache (quicker rebuilds)" "builds go without")
  message(STATUS "  Programs: ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endif()
