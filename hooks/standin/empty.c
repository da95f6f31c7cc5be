/* Takes the place of those of NVIDIA's libraries that no stand-in exists for: programs that load them by path, PyTorch among them, find
 * this one first, and so never the real one. */
typedef int nothing;
