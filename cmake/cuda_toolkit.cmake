# The CUDA toolkit that compiles our CUDA samples and tests; liveset itself needs none. Looked for at CUDA_HOME, /usr/local/cuda, and among
# the packages of the Python that the torch tests take (scripts/setup installs nvcc there).
#   LIVESET_CUDA      AUTO (what is found), ON (none is an error), OFF
# Sets LIVESET_CUDA_FOUND, LIVESET_CUDA_HOME, LIVESET_NVCC, LIVESET_CUDART (the shared runtime library that programs link).
set(LIVESET_CUDA AUTO CACHE STRING "Compile CUDA samples and tests: AUTO, ON or OFF")
set_property(CACHE LIVESET_CUDA PROPERTY STRINGS AUTO ON OFF)

# liveset_cuda_homes(<variable>): folders that may be a toolkit, best first.
function(liveset_cuda_homes variable)
  set(homes "$ENV{CUDA_HOME}" /usr/local/cuda)
  set(python "$ENV{LIVESET_PYTHON}")
  if(NOT python)
    set(python ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
  endif()
  execute_process(COMMAND "${python}" -c "import nvidia; print(';'.join(p + '/cu13' for p in nvidia.__path__))"
                  OUTPUT_VARIABLE packaged OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${variable} ${homes} ${packaged} PARENT_SCOPE)
endfunction()

set(LIVESET_CUDA_FOUND FALSE)
if(LIVESET_CUDA)  # AUTO is true, too
  liveset_cuda_homes(liveset_homes)
  foreach(home ${liveset_homes})
    file(GLOB liveset_cudart ${home}/lib64/libcudart.so.1[0-9] ${home}/lib/libcudart.so.1[0-9])
    if(EXISTS ${home}/bin/nvcc AND liveset_cudart)
      list(GET liveset_cudart 0 LIVESET_CUDART)
      set(LIVESET_CUDA_FOUND TRUE)
      set(LIVESET_CUDA_HOME ${home})
      set(LIVESET_NVCC ${home}/bin/nvcc)
      break()
    endif()
  endforeach()
  if(LIVESET_CUDA_FOUND)
    message(STATUS "CUDA toolkit: ${LIVESET_CUDA_HOME}")
  elseif(LIVESET_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA toolkit: none, so no CUDA samples and tests (scripts/setup installs nvcc, or set CUDA_HOME)")
  else()
    message(FATAL_ERROR "LIVESET_CUDA is ${LIVESET_CUDA}, but no toolkit was found: set CUDA_HOME, or run scripts/setup")
  endif()
endif()

# liveset_cuda_program(<name> CUDA <file.cu>... [SOURCES <file.cpp>...] [OPTIONS <nvcc option>...]): a program that links the shared CUDA
# runtime. The runtime is found by RUNPATH, so LD_LIBRARY_PATH, and with it a dry run, comes first. The kernels are stored as PTX for
# compute capability 7.5, which every later device compiles for itself.
function(liveset_cuda_program name)
  cmake_parse_arguments(arg "" "" "CUDA;SOURCES;OPTIONS" ${ARGN})
  set(objects)
  foreach(source ${arg_CUDA})
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(stem ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.${stem}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${LIVESET_NVCC} -c -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -cudart shared -gencode arch=compute_75,code=compute_75
              -Xcompiler -fPIC -I ${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -MT ${object} ${arg_OPTIONS} -o ${object} ${source}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling ${name}: ${stem}.cu" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  add_executable(${name} ${arg_SOURCES} ${objects})
  target_link_libraries(${name} PRIVATE liveset_flags ${LIVESET_CUDART})
  target_link_options(${name} PRIVATE -Wl,--enable-new-dtags)
  get_filename_component(runtime_folder ${LIVESET_CUDART} DIRECTORY)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX BUILD_RPATH ${runtime_folder})
endfunction()
