# The libraries that Tutti stands on; docs/dependencies.md says what each is for.
# `tools/setup` installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2.4)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
find_package(hwy CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)

# Matrices of the training layer; without them it multiplies them itself.
pkg_check_modules(OPENBLAS QUIET IMPORTED_TARGET openblas)
# Debian's dnnl-config.cmake asks for OpenCL, which the library does not need.
find_library(TUTTI_DNNL_LIBRARY dnnl)
find_path(TUTTI_DNNL_INCLUDE_DIR dnnl.h)
mark_as_advanced(TUTTI_DNNL_LIBRARY TUTTI_DNNL_INCLUDE_DIR)
if(TUTTI_DNNL_LIBRARY AND TUTTI_DNNL_INCLUDE_DIR)
  set(TUTTI_DNNL_FOUND TRUE)
endif()

# Headers only (docs/ucx.md): which networks there are is found out where Tutti runs.
pkg_check_modules(UCX QUIET ucx>=1.12)

if(TUTTI_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
find_package(benchmark CONFIG QUIET)  # micro-benchmarks only

# What libtutti itself needs when it is linked; also told to users by the installed package.
set(TUTTI_LINK_LIBRARIES PkgConfig::HWLOC PkgConfig::SODIUM PkgConfig::ISAL hwy::hwy fmt::fmt
                         Threads::Threads ${CMAKE_DL_LIBS})
