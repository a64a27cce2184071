# Installs BUILD_DIR into a fresh prefix under WORK_DIR and uses it from there as a stranger would.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_greeting how)
  if(NOT output MATCHES "sum over 1 rank: 42")
    message(FATAL_ERROR "the program built with ${how} printed: ${output}")
  endif()
  message(STATUS "${how}: ${output}")
endfunction()

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

run(${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/cmake -G Ninja
    -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/cmake)
run(${WORK_DIR}/cmake/consumer)
expect_greeting(find_package)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(pkg-config --static --cflags --libs --define-variable=prefix=${prefix} tutti)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${CXX} ${CONSUMER_DIR}/main.cc -o ${WORK_DIR}/by_pkg_config ${flags}
    -Wl,-rpath,${prefix}/${LIBDIR})
run(${WORK_DIR}/by_pkg_config)
expect_greeting(pkg-config)
