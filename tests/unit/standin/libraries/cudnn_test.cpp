// The stand-in cuDNN against shapes worked out by hand from the definitions.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "tests/unit/standin/libraries/fake_driver.h"

extern "C" {
int cudnnCreateRNNDescriptor(void**);
int cudnnSetRNNDescriptor_v8(void*, int, int, int, int, int, int, int, int, std::int32_t, std::int32_t, std::int32_t, std::int32_t, void*,
                             std::uint32_t);
int cudnnGetRNNWeightSpaceSize(void*, const void*, std::size_t*);
int cudnnGetRNNWeightParams(void*, const void*, std::int32_t, std::size_t, const void*, std::int32_t, void*, void**, void*, void**);
int cudnnCreateRNNDataDescriptor(void**);
int cudnnSetRNNDataDescriptor(void*, int, int, int, int, int, const int*, void*);
int cudnnGetRNNTempSpaceSizes(void*, const void*, int, const void*, std::size_t*, std::size_t*);
std::size_t cudnnGetVersion();
int cudnnCreateTensorDescriptor(void**);
int cudnnSetTensor4dDescriptor(void*, int, int, int, int, int, int);
int cudnnGetTensorNdDescriptor(const void*, int, int*, int*, int*, int*);
int cudnnGetTensorSizeInBytes(const void*, std::size_t*);
int cudnnCreateFilterDescriptor(void**);
int cudnnSetFilter4dDescriptor(void*, int, int, int, int, int, int);
int cudnnCreateConvolutionDescriptor(void**);
int cudnnSetConvolution2dDescriptor(void*, int, int, int, int, int, int, int, int);
int cudnnGetConvolution2dForwardOutputDim(const void*, const void*, const void*, int*, int*, int*, int*);
int cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int, std::size_t*);
int cudnnBackendCreateDescriptor(int, void**);
int cudnnBackendDestroyDescriptor(void*);
int cudnnBackendFinalize(void*);
int cudnnBackendSetAttribute(void*, int, int, std::int64_t, const void*);
int cudnnBackendGetAttribute(void*, int, int, std::int64_t, std::int64_t*, void*);
}

namespace {

constexpr int relu = 0, lstm = 2, gru = 3;
constexpr int no_bias = 0, both_biases = 2;
constexpr int float32 = 0, float16 = 2;

void* network(int cell, int bias, bool bidirectional, int input, int hidden, int projection, int layers, int type = float32) {
  void* descriptor = nullptr;
  EXPECT_EQ(cudnnCreateRNNDescriptor(&descriptor), 0);
  EXPECT_EQ(
      cudnnSetRNNDescriptor_v8(descriptor, 0, cell, bias, bidirectional, 0, type, type, 0, input, hidden, projection, layers, nullptr, 1),
      0);
  return descriptor;
}

std::size_t weight_bytes(void* descriptor) {
  std::size_t bytes = 0;
  EXPECT_EQ(cudnnGetRNNWeightSpaceSize(nullptr, descriptor, &bytes), 0);
  return bytes;
}

struct Shown {
  std::ptrdiff_t offset = -1;  // in bytes; -1: nothing is there
  std::array<int, 3> extents{};
};

Shown shown(void* descriptor, int layer, int linear, bool bias) {
  static std::array<char, 1 << 20> weights;
  void* tensor = nullptr;
  EXPECT_EQ(cudnnCreateTensorDescriptor(&tensor), 0);
  void* address = nullptr;
  EXPECT_EQ(cudnnGetRNNWeightParams(nullptr, descriptor, layer, weights.size(), weights.data(), linear, bias ? nullptr : tensor,
                                    bias ? nullptr : &address, bias ? tensor : nullptr, bias ? &address : nullptr),
            0);
  Shown result;
  int type = 0, dimensions = 0;
  std::array<int, 3> strides{};
  EXPECT_EQ(cudnnGetTensorNdDescriptor(tensor, 3, &type, &dimensions, result.extents.data(), strides.data()), 0);
  EXPECT_EQ(dimensions, 3);
  if (address) result.offset = static_cast<char*>(address) - weights.data();
  std::free(tensor);
  return result;
}

// Sizes of PyTorch's modules with the same arguments, whose parameters are public: nn.LSTM(24, 32, 2) has
// 4*32*(24+32) + 2*4*32 + 4*32*(32+32) + 2*4*32 = 15,872 of them.
TEST(CudnnRnn, WeightSpaceFollowsFromTheDefinitionOfTheCells) {
  EXPECT_EQ(weight_bytes(network(lstm, both_biases, false, 24, 32, 0, 2)), 15872u * 4);
  EXPECT_EQ(weight_bytes(network(lstm, both_biases, false, 24, 32, 0, 2, float16)), 15872u * 2);
  // nn.GRU(24, 32, 2, bidirectional=True): two directions; the second layer's input is 64 wide.
  EXPECT_EQ(weight_bytes(network(gru, both_biases, true, 24, 32, 0, 2)),
            2u * (3 * 32 * (24 + 32) + 6 * 32 + 3 * 32 * (64 + 32) + 6 * 32) * 4);
  // nn.RNN(24, 32, 1, bias=False)
  EXPECT_EQ(weight_bytes(network(relu, no_bias, false, 24, 32, 0, 1)), 32u * (24 + 32) * 4);
  // nn.LSTM(24, 32, 1, proj_size=16): the hidden state is 16 wide, and a matrix of 16 x 32 projects to it.
  EXPECT_EQ(weight_bytes(network(lstm, both_biases, false, 24, 32, 16, 1)), (4u * 32 * (24 + 16) + 16 * 32 + 8 * 32) * 4);
}

TEST(CudnnRnn, GatesLieOneAfterTheOtherAndFillTheSpace) {
  void* descriptor = network(lstm, both_biases, true, 24, 32, 0, 2);
  std::ptrdiff_t next = 0;
  for (int layer = 0; layer < 4; layer++) {
    for (int linear = 0; linear < 8; linear++) {
      const Shown matrix = shown(descriptor, layer, linear, false);
      EXPECT_EQ(matrix.offset, next) << layer << " " << linear;
      const int width = linear >= 4 ? 32 : layer < 2 ? 24 : 64;
      EXPECT_EQ(matrix.extents, (std::array<int, 3>{1, 32, width}));
      next += 32 * width * 4;
    }
  }
  for (int layer = 0; layer < 4; layer++) {
    for (int linear = 0; linear < 8; linear++) {
      const Shown bias = shown(descriptor, layer, linear, true);
      EXPECT_EQ(bias.offset, next) << layer << " " << linear;
      EXPECT_EQ(bias.extents, (std::array<int, 3>{1, 32, 1}));
      next += 32 * 4;
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(next), weight_bytes(descriptor));
}

TEST(CudnnRnn, ShowsNoBiasWhereThereIsNone) {
  EXPECT_EQ(shown(network(lstm, no_bias, false, 8, 8, 0, 1), 0, 0, true).offset, -1);
  EXPECT_EQ(shown(network(lstm, both_biases, false, 8, 8, 0, 1), 0, 8, false).offset, -1);  // no projection
}

TEST(CudnnRnn, TemporarySpaceIsAnAssumptionThatIsCounted) {
  void* data = nullptr;
  ASSERT_EQ(cudnnCreateRNNDataDescriptor(&data), 0);
  ASSERT_EQ(cudnnSetRNNDataDescriptor(data, float32, 0, 5, 4, 24, nullptr, nullptr), 0);
  take_estimates();
  std::size_t workspace = 0, reserve = 0;
  ASSERT_EQ(cudnnGetRNNTempSpaceSizes(nullptr, network(lstm, both_biases, false, 24, 32, 0, 2), 1, data, &workspace, &reserve), 0);
  EXPECT_EQ(workspace, 5u * 4 * 32 * 4 * 4);          // the gates of one layer
  EXPECT_EQ(reserve, 5u * 4 * 32 * (4 + 1) * 2 * 4);  // gates and cell state of both layers
  EXPECT_EQ(take_estimates().size(), 1u);
}

TEST(Cudnn, VersionIsThatOfTheWheel) { EXPECT_EQ(cudnnGetVersion(), 92403u); }

// nn.Conv2d(3, 64, 7, stride=2, padding=3) on 224 x 224, the first layer of a ResNet: 112 x 112.
TEST(Cudnn, ConvolutionGivesTheSizeOfItsOutput) {
  void *input = nullptr, *filter = nullptr, *convolution = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&input), 0);
  ASSERT_EQ(cudnnSetTensor4dDescriptor(input, 0, float16, 8, 3, 224, 224), 0);
  ASSERT_EQ(cudnnCreateFilterDescriptor(&filter), 0);
  ASSERT_EQ(cudnnSetFilter4dDescriptor(filter, float16, 0, 64, 3, 7, 7), 0);
  ASSERT_EQ(cudnnCreateConvolutionDescriptor(&convolution), 0);
  ASSERT_EQ(cudnnSetConvolution2dDescriptor(convolution, 3, 3, 2, 2, 1, 1, 0, float32), 0);
  std::array<int, 4> extents{};
  ASSERT_EQ(cudnnGetConvolution2dForwardOutputDim(convolution, input, filter, &extents[0], &extents[1], &extents[2], &extents[3]), 0);
  EXPECT_EQ(extents, (std::array<int, 4>{8, 64, 112, 112}));
  std::size_t bytes = 0;
  ASSERT_EQ(cudnnGetTensorSizeInBytes(input, &bytes), 0);
  EXPECT_EQ(bytes, 8u * 3 * 224 * 224 * 2);
  take_estimates();
  ASSERT_EQ(cudnnGetConvolutionForwardWorkspaceSize(nullptr, nullptr, nullptr, nullptr, nullptr, 0, &bytes), 0);
  EXPECT_EQ(take_estimates().begin()->first.substr(0, 11), "convolution");
}

// ---- backend interface ----
constexpr int type_int64 = 3, type_descriptor = 15, type_behavior_note = 19;

void* backend(int type) {
  void* descriptor = nullptr;
  EXPECT_EQ(cudnnBackendCreateDescriptor(type, &descriptor), 0);
  return descriptor;
}

void link(void* owner, int attribute, void* child) { EXPECT_EQ(cudnnBackendSetAttribute(owner, attribute, type_descriptor, 1, &child), 0); }

// The way from an operation to a plan's workspace, as a caller goes it. Returns the estimates of the last step.
std::map<std::string, int> plan_estimates(int operation_type) {
  void* operation = backend(operation_type);
  void* graph = backend(15);
  link(graph, 801, operation);
  void* heuristic = backend(4);
  link(heuristic, 201, graph);
  std::int64_t count = 0;
  EXPECT_EQ(cudnnBackendGetAttribute(heuristic, 202, type_descriptor, 0, &count, nullptr), 0);
  EXPECT_EQ(count, 1);
  void* configuration = backend(3);
  EXPECT_EQ(cudnnBackendGetAttribute(heuristic, 202, type_descriptor, 1, &count, &configuration), 0);
  void* engine = backend(2);
  EXPECT_EQ(cudnnBackendGetAttribute(configuration, 300, type_descriptor, 1, &count, &engine), 0);
  std::int64_t notes = -1;
  EXPECT_EQ(cudnnBackendGetAttribute(engine, 1305, type_behavior_note, 50, &notes, nullptr), 0);
  EXPECT_EQ(notes, 0);
  void* plan = backend(5);
  link(plan, 401, configuration);
  EXPECT_EQ(cudnnBackendFinalize(plan), 0);
  for (void* done : {operation, graph, heuristic, configuration, engine}) EXPECT_EQ(cudnnBackendDestroyDescriptor(done), 0);
  take_estimates();
  std::int64_t workspace = -1;
  EXPECT_EQ(cudnnBackendGetAttribute(plan, 402, type_int64, 1, &count, &workspace), 0);
  EXPECT_EQ(workspace, 0);
  cudnnBackendDestroyDescriptor(plan);
  return take_estimates();
}

TEST(CudnnBackend, PlanOfAConvolutionSaysSo) {
  EXPECT_EQ(plan_estimates(10), (std::map<std::string, int>{{"convolution: cuDNN plan: forward", 1}}));
  EXPECT_EQ(plan_estimates(11), (std::map<std::string, int>{{"convolution: cuDNN plan: gradient of the filter", 1}}));
  EXPECT_EQ(plan_estimates(12), (std::map<std::string, int>{{"convolution: cuDNN plan: gradient of the input", 1}}));
  EXPECT_EQ(plan_estimates(13), (std::map<std::string, int>{{"workspace: cuDNN plan", 1}}));  // pointwise
}

TEST(CudnnBackend, GivesBackWhatItWasGiven) {
  void* tensor = backend(17);
  const std::array<std::int64_t, 4> extents{8, 3, 224, 224};
  ASSERT_EQ(cudnnBackendSetAttribute(tensor, 902, type_int64, 4, extents.data()), 0);
  std::array<std::int64_t, 4> back{};
  std::int64_t count = 0;
  ASSERT_EQ(cudnnBackendGetAttribute(tensor, 902, type_int64, 4, &count, back.data()), 0);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(back, extents);
  back = {};
  ASSERT_EQ(cudnnBackendGetAttribute(tensor, 902, type_int64, 2, &count, back.data()), 0);  // room for two
  EXPECT_EQ(count, 4);
  EXPECT_EQ(back, (std::array<std::int64_t, 4>{8, 3, 0, 0}));
  cudnnBackendDestroyDescriptor(tensor);
}

}  // namespace
