# The GPU kernels: compiled by nvcc, where one is found, into one image for several generations of
# GPUs, which libtutti carries in itself and loads by the driver. Nothing of CUDA is linked.
#
# What ptxas says of every kernel (registers, stack, spills) lands beside the image, for
# tests/gpu/kernel_figures.py.
option(TUTTI_CUDA "Compile the GPU kernels where nvcc is found" ON)
set(TUTTI_CUDA_FOUND FALSE)
# Kernels do not differ with the sanitizers of the host's code, and take a minute.
if(TUTTI_CUDA AND NOT TUTTI_SANITIZE)
  find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(TUTTI_NVCC)
  if(TUTTI_NVCC)
    execute_process(COMMAND ${TUTTI_NVCC} --list-gpu-arch OUTPUT_VARIABLE tutti_gpu_architectures
                    ERROR_QUIET)
    if(tutti_gpu_architectures MATCHES compute_80 AND tutti_gpu_architectures MATCHES compute_100)
      set(TUTTI_CUDA_FOUND TRUE)
    endif()
  endif()
endif()

# tutti_embed_kernels(): to be called where src/runtime is built, before its sources are compiled.
function(tutti_embed_kernels)
  if(NOT TUTTI_CUDA_FOUND)
    return()
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/gpu)
  set(image ${folder}/kernels.fatbin)
  set(figures ${folder}/kernels.figures)
  file(MAKE_DIRECTORY ${folder})
  set(code -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
           -gencode arch=compute_100,code=sm_100 -gencode arch=compute_100,code=compute_100)
  # Products and sums are not contracted, so that a GPU rounds as the host does.
  set(options -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr --threads 2 -Xptxas -v
              -Xfatbin=-compress-all
              -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND options -ccbin ${CMAKE_CXX_COMPILER})
  endif()
  if(TUTTI_WARNINGS_AS_ERRORS)
    list(APPEND options -Werror all-warnings)
  endif()
  list(JOIN code " " code)
  list(JOIN options " " options)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/gpu/kernels.cu)
  set(command "'${TUTTI_NVCC}' ${options} ${code} -MD -MF '${image}.d' -MT '${image}' -fatbin")
  string(APPEND command " -o '${image}' '${source}' > '${figures}' 2>&1")
  # What nvcc says is shown only when it fails.
  set(otherwise "{ cat '${figures}'; rm -f '${image}'; exit 1; }")
  add_custom_command(
    OUTPUT ${image}
    BYPRODUCTS ${figures}
    COMMAND sh -c "${command} || ${otherwise}"
    DEPENDS ${source}
    DEPFILE ${image}.d
    COMMENT "Compiling GPU kernels"
    VERBATIM)
  set_source_files_properties(gpu/kernel_image.cc PROPERTIES
                              COMPILE_DEFINITIONS TUTTI_KERNEL_IMAGE="${image}"
                              OBJECT_DEPENDS ${image})
  set_property(GLOBAL PROPERTY TUTTI_KERNEL_FIGURES ${figures})
endfunction()
