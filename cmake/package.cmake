# What `pip install .` puts into the folder of the Python package (pyproject.toml): the same layout as in the build folder, so that the
# program finds everything relative to itself.
install(TARGETS liveset RUNTIME DESTINATION liveset/bin)
install(TARGETS liveset_preload LIBRARY DESTINATION liveset/lib)
install(DIRECTORY ${CMAKE_BINARY_DIR}/lib/liveset DESTINATION liveset/lib USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
