# Flags and small helpers that every folder uses.

add_library(liveset_flags INTERFACE)
target_compile_options(liveset_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wno-missing-field-initializers -Werror)
target_include_directories(liveset_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(liveset_flags INTERFACE LIVESET_VERSION="${PROJECT_VERSION}")
if(LIVESET_SANITIZE)
  add_compile_options(-fsanitize=${LIVESET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LIVESET_SANITIZE})
endif()

# liveset_library(<name> SOURCES ... [LIBS ...]): a static library with the project's flags.
function(liveset_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE liveset_flags PUBLIC ${arg_LIBS})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endfunction()

# liveset_test(<name> SOURCES ... [LIBS ...] [LABELS ...]): a GoogleTest program; every case is one ctest test.
function(liveset_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE liveset_flags ${arg_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LIVESET_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LIVESET_BIN_DIR="${CMAKE_BINARY_DIR}/bin"
                                             LIVESET_LIB_DIR="${CMAKE_BINARY_DIR}/lib")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
