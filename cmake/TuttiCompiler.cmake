# How code is compiled: language, warnings, visibility, sanitizers, where programs land.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  # Line numbers in release too, so that a failed TUTTI_ASSERT (always on) has a useful backtrace.
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
endif()

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TUTTI_CCACHE ccache)
  mark_as_advanced(TUTTI_CCACHE)
  if(TUTTI_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${TUTTI_CCACHE})
  endif()
endif()

# Flags for our own code only; programs that link tutti::tutti do not inherit them.
add_library(tutti_flags INTERFACE)
target_compile_options(tutti_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow)
if(TUTTI_WARNINGS_AS_ERRORS)
  target_compile_options(tutti_flags INTERFACE -Werror)
endif()

# Sanitizers must cover every object of a program, so they are global.
if(TUTTI_SANITIZE STREQUAL "address")
  set(sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(TUTTI_SANITIZE STREQUAL "thread")
  set(sanitize_flags -fsanitize=thread)
elseif(TUTTI_SANITIZE STREQUAL "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TUTTI_SANITIZE=fuzzer needs clang, which has libFuzzer; "
                        "the compiler is ${CMAKE_CXX_COMPILER_ID}.")
  endif()
  set(sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(NOT TUTTI_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TUTTI_SANITIZE is '${TUTTI_SANITIZE}'; "
                      "it may be empty, address, thread or fuzzer.")
endif()
if(TUTTI_SANITIZE)
  # The first optimisation level keeps the tests within minutes and stack traces readable; the
  # fuzzer runs small programs millions of times, and the second makes them several times as fast.
  set(sanitize_level -O1)
  if(TUTTI_SANITIZE STREQUAL "fuzzer")
    set(sanitize_level -O2)
  endif()
  add_compile_options(${sanitize_flags} ${sanitize_level} -g1 -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ then takes what a variant does not hold for what is read of it. Its other builds look.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  # Neither compiler tells both sanitizers to the preprocessor by the same name.
  add_compile_definitions(TUTTI_SANITIZED)
  add_link_options(${sanitize_flags})
endif()
if(TUTTI_SANITIZE STREQUAL "fuzzer")
  # The fuzzer steers by which branches were taken.
  add_compile_options(
    -fsanitize=fuzzer-no-link
    -fsanitize-coverage-ignorelist=${CMAKE_CURRENT_LIST_DIR}/fuzz-steering.txt)
endif()
