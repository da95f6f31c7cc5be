"""liveset as a Python package: a folder with the program (bin), the recorder, the stand-in libraries and the GPU profiles (lib)."""
