# Installation: library, public headers, programs, CMake package and pkg-config file.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

install(TARGETS tutti EXPORT tutti-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Not where a loader looks by itself: who has NCCL as well chooses by LD_LIBRARY_PATH or LD_PRELOAD.
if(TARGET tutti_nccl_library)
  install(TARGETS tutti_nccl_library LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti)
endif()
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${package_dir})
if(TARGET tutti_program)
  install(TARGETS tutti_program DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/tutti-config.cmake.in tutti-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(tutti-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/tutti-config-version.cmake
        DESTINATION ${package_dir})

configure_file(cmake/tutti.pc.in tutti.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
