// Tensors, filters and convolutions of cuDNN's older interface: plain data, so that the generated ...Destroy functions can free them.
#pragma once
#include <cstddef>

namespace standin::cudnn {

constexpr int bad_parameter = 2000;
constexpr int max_dimensions = 8;

struct Tensor {
  int type;
  int dimensions;
  int extents[max_dimensions];
  int strides[max_dimensions];
};

struct Filter {
  int type;
  int format;
  int dimensions;
  int extents[max_dimensions];
};

struct Convolution {
  int dimensions;  // spatial ones
  int padding[max_dimensions];
  int stride[max_dimensions];
  int dilation[max_dimensions];
  int mode;
  int compute_type;
  int groups;  // 0 stands for 1
  int math_type;
};

// Bytes of one element of a cuDNN data type; types of less than a byte count as one.
inline std::size_t element_bytes(int type) {
  switch (type) {
    case 1:             // double
    case 10: return 8;  // int64
    case 2:             // half
    case 9: return 2;   // bfloat16
    case 3:             // int8
    case 6:             // uint8
    case 11: return 1;  // boolean
    case 12:
    case 13:  // fp8
    case 15:
    case 16:  // fp8 scale, fp4
    case 17:
    case 18: return 1;  // int4, uint4
    default: return 4;  // float, int32
  }
}

// Fills a tensor with row-major strides.
inline void set_packed(Tensor& tensor, int type, int dimensions, const int* extents) {
  tensor.type = type;
  tensor.dimensions = dimensions;
  int stride = 1;
  for (int i = dimensions - 1; i >= 0; i--) {
    tensor.extents[i] = extents[i];
    tensor.strides[i] = stride;
    stride *= extents[i];
  }
}

}  // namespace standin::cudnn
