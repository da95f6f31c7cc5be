# Flags and small helpers that every folder uses.

add_library(liveset_flags INTERFACE)
target_compile_options(liveset_flags INTERFACE -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Wold-style-cast>
                                               -Wno-missing-field-initializers -Werror)
# g++ 12 warns of overlap in plain string additions (GCC bug 105651).
target_compile_options(liveset_flags INTERFACE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
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

# Which folders of tests/ the sanitizer builds of scripts/test cover: what reads files that it cannot trust, and what
# threads share. A test elsewhere joins by LABELS asan or LABELS tsan.
set(LIVESET_ASAN_FOLDERS unit/standin unit/writer unit/trace unit/ledger unit/allocator unit/plan unit/model unit/compare unit/import property fuzz)
set(LIVESET_TSAN_FOLDERS unit/collect unit/standin)
add_custom_target(asan_tests)
add_custom_target(tsan_tests)

# liveset_test_labels(<variable> [label...]): the labels of a test of the current folder: its folder below tests/, the given
# ones, and asan or tsan where that build covers it.
function(liveset_test_labels variable)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  set(labels ${folder} ${ARGN})
  if(folder IN_LIST LIVESET_ASAN_FOLDERS)
    list(APPEND labels asan)
  endif()
  if(folder IN_LIST LIVESET_TSAN_FOLDERS)
    list(APPEND labels tsan)
  endif()
  list(REMOVE_DUPLICATES labels)
  set(${variable} ${labels} PARENT_SCOPE)
endfunction()

# liveset_sanitize(<target> <labels>): builds the program with asan_tests or tsan_tests when its labels say so.
function(liveset_sanitize target labels)
  foreach(kind asan tsan)
    if(kind IN_LIST labels)
      add_dependencies(${kind}_tests ${target})
    endif()
  endforeach()
endfunction()

# liveset_test(<name> SOURCES ... [LIBS ...] [LABELS ...]): a GoogleTest program; every case is one ctest test.
function(liveset_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE liveset_flags ${arg_LIBS} GTest::gmock GTest::gtest_main)
  # Compiling a test takes far longer than running it.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
  target_compile_definitions(${name} PRIVATE LIVESET_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LIVESET_BIN_DIR="${CMAKE_BINARY_DIR}/bin"
                                             LIVESET_LIB_DIR="${CMAKE_BINARY_DIR}/lib")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  liveset_test_labels(labels ${arg_LABELS})
  liveset_sanitize(${name} "${labels}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_LIST ${name}_TESTS
                       PROPERTIES TIMEOUT ${arg_TIMEOUT})
  # gtest_discover_tests flattens lists, so several labels are set afterwards, on the list of tests that it leaves behind.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${labels_file} "foreach(test IN LISTS ${name}_TESTS)\n"
                            "  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${labels}\")\n" "endforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()

# liveset_script_test(<name> COMMAND <command>... [TIMEOUT s] [LABELS ...] [SERIAL]): any command as a ctest test. It passes with
# status 0; a line "SKIPPED: reason" in its output makes it count as skipped. SERIAL: nothing runs beside it.
function(liveset_script_test name)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  liveset_test_labels(labels ${arg_LABELS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${labels}" SKIP_REGULAR_EXPRESSION "SKIPPED: ")
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
