"""The command `liveset`: this process becomes the program that the package carries."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "liveset")
    try:
        os.execv(program, ["liveset", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"liveset: cannot start {program}: {error.strerror}; install liveset again")


if __name__ == "__main__":
    main()
