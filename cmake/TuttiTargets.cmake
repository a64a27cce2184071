# Helpers that the folders' CMakeLists.txt use.

# tutti_add_part(<name> [USES <lower parts>...] [LINKS <libraries>...] [EXCLUDE <files>...])
#
# Makes the static library tutti_<name> of all .cc files of the calling folder, subfolders included.
# `src` is on the include path of internal targets only. A folder without sources becomes an empty
# target, so that those who use it need not know.
function(tutti_add_part name)
  cmake_parse_arguments(PARSE_ARGV 1 part "" "" "USES;LINKS;EXCLUDE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
  if(part_EXCLUDE)
    list(REMOVE_ITEM sources ${part_EXCLUDE})
  endif()
  list(TRANSFORM part_USES PREPEND tutti_)
  if(NOT sources)
    message(STATUS "src/${name}: no sources")
    add_library(tutti_${name} INTERFACE)
    target_link_libraries(tutti_${name} INTERFACE ${part_USES})
    return()
  endif()
  add_library(tutti_${name} STATIC ${sources})
  target_include_directories(tutti_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                           PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tutti_${name} PUBLIC ${part_USES} Threads::Threads
                                      PRIVATE tutti_flags ${part_LINKS})
endfunction()

# tutti_join_parts(): makes `tutti` (tutti::tutti), what programs link: the same objects as the
# parts, in one library, with only include/ on the include path.
function(tutti_join_parts)
  set(objects "")
  foreach(part IN ITEMS base topology collectives simulate transport runtime)
    if(TARGET tutti_${part})
      get_target_property(type tutti_${part} TYPE)
      if(type STREQUAL "STATIC_LIBRARY")
        list(APPEND objects $<TARGET_OBJECTS:tutti_${part}>)
      endif()
    endif()
  endforeach()
  add_library(tutti ${objects})
  add_library(tutti::tutti ALIAS tutti)
  target_include_directories(tutti INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(tutti INTERFACE cxx_std_20)
  target_link_libraries(tutti PRIVATE ${TUTTI_LINK_LIBRARIES})
  set_target_properties(tutti PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
                                         SOVERSION ${PROJECT_VERSION_MAJOR})
  if(BUILD_SHARED_LIBS)
    set(map ${PROJECT_SOURCE_DIR}/cmake/tutti.map)
    target_link_options(tutti PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined)
    set_target_properties(tutti PROPERTIES LINK_DEPENDS ${map})
  endif()
endfunction()

# tutti_link_internal(<target> <parts>...): for tests and `tutti` itself, which may look inside.
function(tutti_link_internal target)
  set(parts ${ARGN})
  list(TRANSFORM parts PREPEND tutti_)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src
                                               ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} PRIVATE ${parts} tutti_flags)
endfunction()
