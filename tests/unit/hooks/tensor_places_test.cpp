// Where tensors stand in objects of Python, and objects in tensors: learned from objects made here, with a fake libtorch_cpu.so for what
// torch says of a tensor.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "hooks/autograd/tensor_object.h"
#include "hooks/autograd/tensor_storage.h"
#include "tests/support/fake_torch/fake_torch.h"

namespace liveset::autograd {
namespace {

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

class TensorPlaces : public testing::Test {
 protected:
  // An object of Python with so many words: a count, its type, and those of its own. Behind it stands what is another's.
  struct PythonObject {
    std::uint64_t words[12] = {};
  };
  struct PythonType {
    std::uint64_t words[5] = {1, 0, 0, 0, 0};
  };

  PythonObject& object(std::uint64_t own_words) {
    types_.emplace_back().words[4] = own_words * 8;
    PythonObject& made = objects_.emplace_back();
    made.words[0] = 1;
    made.words[1] = number(&types_.back());
    return made;
  }

  // With a storage of its own, of 64 floats; its data begins at the 8th.
  c10::TensorImpl& tensor() {
    c10::TensorImpl& made = tensors_.emplace_back();
    made.data = 0x10000 * tensors_.size() + 8 * 4;
    made.offset = 8;
    made.storage_bytes = 64 * 4;
    return made;
  }
  static TensorStorage said(const c10::TensorImpl& of) { return {of.data - 8 * 4, 64 * 4, 6, 0, 0}; }

  std::deque<PythonType> types_;
  std::deque<PythonObject> objects_;
  std::deque<c10::TensorImpl> tensors_;
};

TEST_F(TensorPlaces, AStorageIsReadFromItsBeginning) {
  c10::TensorImpl* implementation = &tensor();
  TensorStorage storage;
  ASSERT_TRUE(read_tensor(&implementation, storage));
  EXPECT_EQ(storage.address, 0x10000U);
  EXPECT_EQ(storage.bytes, 256U);
  EXPECT_EQ(storage.dtype, 6);
  implementation->dtype = 15;  // bfloat16: 8 elements are 16 bytes
  ASSERT_TRUE(read_tensor(&implementation, storage));
  EXPECT_EQ(storage.address, 0x10000U + 16);
}

TEST_F(TensorPlaces, WhatIsNoPlainTensorIsNotRead) {
  TensorStorage storage;
  c10::OtherImpl other;
  other.data = 0x1000;
  c10::TensorImpl* implementation = &other;
  EXPECT_FALSE(read_tensor(&implementation, storage)) << "of another class";
  implementation = nullptr;
  EXPECT_FALSE(read_tensor(&implementation, storage));
  implementation = &tensor();
  implementation->dtype = 12;  // qint8
  EXPECT_FALSE(read_tensor(&implementation, storage)) << "of a type that the trace has not";
  implementation->dtype = 6;
  implementation->data = 0;
  EXPECT_FALSE(read_tensor(&implementation, storage)) << "without memory";
}

TEST_F(TensorPlaces, OfAnObjectIsTheWordThatLedToEachTensor) {
  TensorPlace place;
  for (int i = 0; i < 4; ++i) {
    c10::TensorImpl& one = tensor();
    PythonObject& its = object(6);
    EXPECT_EQ(place.tensor_in(&its), nullptr);
    its.words[2] = i % 2 == 0 ? number(&one) : number(&tensor());  // a tensor, but not always its own
    its.words[4] = number(&one);
    EXPECT_EQ(place.learn(number(&its), said(one)), i != 3);
  }
  PythonObject& another = object(6);
  EXPECT_EQ(place.tensor_in(&another), &another.words[4]);
}

TEST_F(TensorPlaces, TwoWordsThatAgreeAreToldApartLater) {
  TensorPlace place;
  for (int i = 0; i < 6; ++i) {
    c10::TensorImpl& one = tensor();
    PythonObject& its = object(6);
    its.words[3] = number(&one);
    if (i < 5) its.words[5] = number(&one);
    EXPECT_EQ(place.learn(number(&its), said(one)), i != 5);
  }
  PythonObject& another = object(6);
  EXPECT_EQ(place.tensor_in(&another), &another.words[3]);
}

TEST_F(TensorPlaces, WhatStandsBehindTheObjectIsAnothers) {
  TensorPlace place;
  c10::TensorImpl& one = tensor();
  PythonObject& its = object(6);
  its.words[6] = number(&one);
  EXPECT_FALSE(place.learn(number(&its), said(one))) << "no word of its own leads there: nothing to learn any more";
  EXPECT_EQ(place.tensor_in(&its), nullptr);
}

TEST_F(TensorPlaces, AWrongAddressIsHarmless) {
  TensorPlace place;
  EXPECT_FALSE(place.learn(16, said(tensor())));
  SlotPlace slot;
  EXPECT_FALSE(slot.learn(16, said(tensor())));
  ObjectPlace object_place;
  const std::uint64_t implementation = 16;
  object_place.learn(&implementation, this);
  EXPECT_FALSE(object_place.open());
  EXPECT_EQ(object_place.object_of(&implementation), nullptr);
}

TEST_F(TensorPlaces, OfASlotIsAWordOfWhatItsObjectLeadsTo) {
  SlotPlace place;
  std::deque<std::vector<std::uint64_t>> slots;
  for (int i = 0; i < 8; ++i) {
    c10::TensorImpl& one = tensor();
    PythonObject& its = object(5);
    std::vector<std::uint64_t>& slot = slots.emplace_back(4);
    slot[0] = number(&tensor());
    slot[2] = number(&one);
    its.words[2] = number(&slots);  // readable, and no slot
    its.words[3] = number(slot.data());
    its.words[5] = number(slot.data());  // behind the object
    EXPECT_EQ(place.tensor_in(&its), nullptr);
    EXPECT_TRUE(place.learn(number(&its), said(one)) || i == 7);
    place.learn(number(&its), said(one));  // the same again says nothing new
  }
  EXPECT_EQ(place.tensor_in(&objects_.back()), &slots.back()[2]);
}

TEST_F(TensorPlaces, ASlotWithoutItsTensorEndsTheSearch) {
  SlotPlace place;
  std::vector<std::uint64_t> slot(4);
  PythonObject& its = object(7);
  its.words[3] = number(slot.data());
  EXPECT_FALSE(place.learn(number(&its), said(tensor())));
  EXPECT_EQ(place.tensor_in(&its), nullptr);
}

TEST_F(TensorPlaces, TheObjectOfATensorIsTheWordThatHeldEachObject) {
  ObjectPlace place;
  const auto learn = [&] {
    c10::TensorImpl* implementation = &tensor();
    PythonObject& its = object(6);
    implementation->object = &its;
    place.learn(&implementation, &its);
    place.learn(&implementation, &its);  // the same again says nothing new
    return implementation;
  };
  for (int i = 0; i < 3; ++i) {
    const c10::TensorImpl* implementation = learn();
    EXPECT_EQ(place.object_of(&implementation), nullptr) << i;
    EXPECT_TRUE(place.open());
  }
  c10::TensorImpl* implementation = learn();
  EXPECT_FALSE(place.open());
  EXPECT_EQ(place.object_of(&implementation), implementation->object);
  void* object = implementation->object;
  implementation->object = static_cast<char*>(object) + 1;  // torch's mark: the tensor owns the object
  EXPECT_EQ(place.object_of(&implementation), object);
  implementation->object = nullptr;
  EXPECT_EQ(place.object_of(&implementation), nullptr);
}

}  // namespace
}  // namespace liveset::autograd
