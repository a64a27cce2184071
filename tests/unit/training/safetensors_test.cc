// safetensors files: made by hand and read, each rule broken once, written and compared byte by
// byte, written by several, and what the system refuses.
#include "training/model/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model_files.hpp"

namespace tutti::training {
namespace {

using testing::as_bytes_of;
using testing::bytes_of_numbers;
using testing::file_by_hand;
using testing::FileByHand;
using ::testing::HasSubstr;
using testing::ModelFolder;
using testing::prefix_of;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status failure(const std::string& file) { return parse_safetensors(as_bytes_of(file)).status(); }

TEST(Safetensors, ReadsAFileMadeByHand) {
  const std::string file = file_by_hand(
      R"({"__metadata__":{"format":"pt","by":"hand"},"b":{"dtype":"F32","shape":[1,2],)"
      R"("data_offsets":[3,11]},"a":{"data_offsets":[0,3],"shape":[3],"dtype":"I8"}}   )",
      "xyz" + bytes_of_numbers<float>({1.5f, -2.0f}));
  const Result<SafetensorsContents> read = parse_safetensors(as_bytes_of(file));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->metadata, (SafetensorsMetadata{{"by", "hand"}, {"format", "pt"}}));
  ASSERT_EQ(read->entries.size(), 2u);
  EXPECT_EQ(read->entries[0].name, "a");
  EXPECT_EQ(read->entries[0].type, DataType::int8);
  EXPECT_EQ(read->entries[0].extents, Extents({3}));
  EXPECT_EQ(text_of(read->entries[0].bytes), "xyz");
  EXPECT_EQ(read->entries[1].type_name, "F32");
  EXPECT_EQ(read->entries[1].extents, Extents({1, 2}));
  EXPECT_EQ(text_of(read->entries[1].bytes), bytes_of_numbers<float>({1.5f, -2.0f}));
}

TEST(Safetensors, EmptyTensorsMayLieAnywhereAndScalarsHaveOneElement) {
  const std::string file = FileByHand()
                               .add("none", "F32", "[0,7]", "")
                               .add("scalar", "F64", "[]", bytes_of_numbers<double>({3.25}))
                               .add("nothing", "BF16", "[2,0]", "")
                               .add("deep", "U8", "[1,1,1,1,1,2]", "ab")
                               .text();
  const Result<SafetensorsContents> read = parse_safetensors(as_bytes_of(file));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->entries[1].bytes.size(), 0u);
  EXPECT_EQ(read->entries[2].extents, Extents({2, 0}));
  EXPECT_EQ(read->entries[3].bytes.size(), 8u);
  EXPECT_EQ(read->entries[0].extents.size(), 6u);
  EXPECT_TRUE(parse_safetensors(as_bytes_of(file_by_hand("{}", ""))).ok());
}

TEST(Safetensors, TypesThatWeCannotHoldAreListed) {
  const std::string file = FileByHand()
                               .add("bool", "BOOL", "[2]", "ab")
                               .add("complex", "C64", "[1]", "01234567")
                               .add("four", "F4", "[2,2]", "ab")
                               .add("scale", "F8_E8M0", "[1]", "a")
                               .text();
  const Result<SafetensorsContents> read = parse_safetensors(as_bytes_of(file));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  for (const SafetensorsEntry& entry : read->entries) EXPECT_FALSE(entry.type) << entry.name;
  EXPECT_THAT(failure(FileByHand().add("half", "F4", "[3]", "ab").text()).message(),
              HasSubstr("no whole number of bytes"));
}

// Each rule of the format, broken once.
struct Refused {
  std::string file;
  const char* text;
};

void expect_refused(const std::vector<Refused>& cases) {
  for (const Refused& one : cases) {
    const Status status = failure(one.file);
    EXPECT_EQ(status.code(), StatusCode::corrupt_data) << one.text << "\n" << one.file;
    EXPECT_THAT(status.message(), HasSubstr(one.text)) << one.file;
  }
}

std::string header(const std::string& json, const std::string& data = "ab") {
  return file_by_hand(json, data);
}

const std::string kTensor = R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})";

TEST(Safetensors, ThePrefixAndTheJsonMustBeSound) {
  expect_refused({
      {"", "too short"},
      {"1234567", "too short"},
      {prefix_of(0), "does not begin with '{'"},
      {prefix_of(3) + "{}", "header of 3 bytes in a file of 10"},
      {prefix_of(~std::uint64_t{0}) + "{}", "at most 100000000"},
      {prefix_of(100000001) + "{}", "at most 100000000"},
      {header(" {}", ""), "does not begin with '{'"},
      {header("[]", ""), "does not begin with '{'"},
      {header("{", ""), "not JSON"},
      {header("{} x", ""), "not JSON"},
      {header("{\"\xff\":" + kTensor + "}"), "not JSON"},
  });
}

TEST(Safetensors, OnlyTheRightKindOfValueIsTaken) {
  expect_refused({
      {header(R"({"a":1})"), "a number where none belongs"},
      {header(R"({"a":null})"), "a null"},
      {header(R"({"a":[]})"), "an array where none belongs"},
      {header(R"({"a":"b"})"), "a text where none belongs"},
      {header(R"({"a":{"dtype":{}}})"), "an object where none belongs"},
      {header(R"({"a":)" + kTensor + R"(,"a":)" + kTensor + "}"), "overlapping"},
      {header(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":)" + kTensor + "}"),
       "\"a\" is there twice"},
      {header(R"({"__metadata__":{"a":1}})", ""), "a number where none belongs"},
      {header(R"({"__metadata__":{"a":{}}})", ""), "an object where none belongs"},
      {header(R"({"__metadata__":"a"})", ""), "a text where none belongs"},
      {header(R"({"__metadata__":{"a":"b","a":"c"}})", ""), "a key twice"},
      {header(R"({"__metadata__":{},"__metadata__":{}})", ""), "\"__metadata__\" is there twice"},
  });
}

TEST(Safetensors, FieldsOfATensorMustBeSound) {
  expect_refused({
      {header(R"({"a":{"dtype":"U9","shape":[2],"data_offsets":[0,2]}})"), "dtype \"U9\""},
      {header(R"({"a":{"shape":[2],"data_offsets":[0,2]}})"), "dtype is missing"},
      {header(R"({"a":{"dtype":"U8","data_offsets":[0,2]}})"), "shape is missing"},
      {header(R"({"a":{"dtype":"U8","shape":[2]}})"), "must be two numbers"},
      {header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0]}})"), "must be two numbers"},
      {header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1,2]}})"), "more than two"},
      {header(R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})"),
       "\"dtype\" is unknown or there twice"},
      {header(R"({"a":{"dtype":"U8","shape":[2],"shape":[2],"data_offsets":[0,2]}})"),
       "\"shape\" is unknown or there twice"},
      {header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1}})"), "\"x\""},
      {header(R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})"), "negative"},
      {header(R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})"), "with a point"},
      {header(R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,2]}})"), "true or false"},
      {header(R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})"), "an array where"},
      {header(R"({"a":{"dtype":"U8","shape":["2"],"data_offsets":[0,2]}})"), "a text where"},
      {header(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,2]}})"),
       "an extent above 2^63"},
      {header(R"({"a":{"dtype":"U8","shape":[4294967296,4294967298],"data_offsets":[0,2]}})"),
       "no whole number of bytes"},
  });
}

TEST(Safetensors, TensorsMustTileTheData) {
  expect_refused({
      {header(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})"), "needs 3 bytes"},
      {header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})"), "leaving a hole"},
      {header(R"({"b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
              R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,18446744073709551615]}})"),
       "needs 2 bytes"},
      {header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})"), "leaving a hole"},
      {header(R"({"a":)" + kTensor + "}", "a"), "the file has 1"},
      {header(R"({"a":)" + kTensor + "}", "abc"), "the file has 3"},
      {header(R"({"a":)" + kTensor + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
              "abc"),
       "overlapping"},
      {header(R"({"a":)" + kTensor + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
              "abcd"),
       "leaving a hole"},
  });
}

TEST(Safetensors, AnOffsetBeforeItsBeginningIsRefused) {
  const Status status =
      failure(file_by_hand(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("c":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})",
                           "ab"));
  EXPECT_THAT(status.message(), HasSubstr("not ascending"));
}

TEST(Safetensors, DeepNestingEndsTheReadingAtOnce) {
  const std::string deep = "{\"a\":" + std::string(1000000, '[');
  EXPECT_EQ(failure(file_by_hand(deep, "")).code(), StatusCode::corrupt_data);
}

TEST(Safetensors, NamesInErrorsAreShortAndPrintable) {
  const std::string name = "\\u0001" + std::string(5000, 'n');
  const Status status = failure(file_by_hand("{\"" + name + "\":{}}", ""));
  EXPECT_LT(status.message().size(), 200u);
  EXPECT_THAT(status.message(), HasSubstr("tensor \"?nnn"));
}

TEST(SafetensorsFile, OpensFindsAndNamesThePathOfWhatIsWrong) {
  const ModelFolder folder;
  const std::string path =
      folder.put("good.safetensors", FileByHand().add("x", "U8", "[2]", "ab").text());
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const SafetensorsFile copy = *file;
  ASSERT_NE(copy.find("x"), nullptr);
  EXPECT_EQ(text_of(copy.find("x")->bytes), "ab");
  EXPECT_EQ(copy.find("w"), nullptr);
  EXPECT_EQ(copy.find("y"), nullptr);
  EXPECT_EQ(copy.path(), path);

  const Status missing = SafetensorsFile::open(folder.file("none")).status();
  EXPECT_EQ(missing.code(), StatusCode::system_error);
  EXPECT_THAT(missing.message(), HasSubstr(folder.file("none")));
  EXPECT_EQ(SafetensorsFile::open(folder.path()).status().code(), StatusCode::system_error);
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);  // opening must not wait for a writer
  EXPECT_THAT(SafetensorsFile::open(folder.file("pipe")).status().message(),
              HasSubstr("not a regular file"));
  const Status empty = SafetensorsFile::open(folder.put("empty", "")).status();
  EXPECT_EQ(empty.code(), StatusCode::corrupt_data);
  EXPECT_THAT(empty.message(), HasSubstr(folder.file("empty")));
}

TEST(SafetensorsLayout, IsPaddedAlignedAndWideTypesFirst) {
  const Result<SafetensorsLayout> layout =
      SafetensorsLayout::make({{"b", DataType::bfloat16, {3}},
                               {"c", DataType::float32, {2, 2}},
                               {"a", DataType::int8, {}},
                               {"z", DataType::float32, {1}}},
                              {{"k", "v"}});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->header().size() % 8, 0u);
  EXPECT_EQ(layout->header().substr(8).find_last_not_of(' '), layout->header().rfind('}') - 8);
  const std::uint64_t data = layout->header().size();
  EXPECT_EQ(layout->find("c")->offset, data);
  EXPECT_EQ(layout->find("z")->offset, data + 16);
  EXPECT_EQ(layout->find("b")->offset, data + 20);
  EXPECT_EQ(layout->find("a")->offset, data + 26);
  EXPECT_EQ(layout->find("a")->bytes, 1u);
  EXPECT_EQ(layout->file_bytes(), data + 27);
  EXPECT_FALSE(layout->find("d"));
  const auto json = nlohmann::json::parse(layout->header().substr(8));
  EXPECT_EQ(json["__metadata__"], (nlohmann::json{{"k", "v"}}));
  EXPECT_EQ(json["c"],
            (nlohmann::json{{"dtype", "F32"}, {"shape", {2, 2}}, {"data_offsets", {0, 16}}}));
}

TEST(SafetensorsLayout, RefusesWhatCannotBeAFile) {
  const auto code = [](std::vector<SafetensorsPlan> plans, const SafetensorsMetadata& metadata) {
    return SafetensorsLayout::make(std::move(plans), metadata).status().code();
  };
  const SafetensorsPlan good{"a", DataType::float32, {2}};
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(code({good}, {}), StatusCode::ok);
  EXPECT_EQ(code({good, good}, {}), StatusCode::invalid_argument);
  EXPECT_EQ(code({{"__metadata__", DataType::int8, {}}}, {}), StatusCode::invalid_argument);
  EXPECT_EQ(code({{"\xff", DataType::int8, {}}}, {}), StatusCode::invalid_argument);
  EXPECT_EQ(code({good}, {{"k", "\xff"}}), StatusCode::invalid_argument);
  EXPECT_EQ(code({{"a", DataType::int8, {-1}}}, {}), StatusCode::invalid_argument);
  EXPECT_EQ(code({{"a", DataType::int8, {large, large}}}, {}), StatusCode::invalid_argument);
}

// The bytes of some numbers of each type; what they are does not matter to a file.
std::string sample_bytes(DataType type, std::size_t elements) {
  std::string made;
  for (std::size_t i = 0; i < elements * size_of(type); ++i)
    made += static_cast<char>(17 * i + static_cast<std::size_t>(type));
  return made;
}

TEST(SafetensorsOutput, AllTypesComeBackBitByBit) {
  const ModelFolder folder;
  std::vector<std::string> kept;
  std::vector<NamedBytes> tensors;
  kept.reserve(std::size(kAllDataTypes));
  for (const DataType type : kAllDataTypes) {
    kept.push_back(sample_bytes(type, 15));
    tensors.push_back({{std::string(to_string(type)), type, {3, 5}}, as_bytes_of(kept.back())});
  }
  tensors.push_back({{"empty", DataType::float32, {0, 4}}, {}});
  const std::string path = folder.file("all.safetensors");
  const Status written = write_safetensors(path, tensors, {{"who", "us"}});
  ASSERT_TRUE(written.ok()) << written.to_string();
  EXPECT_FALSE(folder.has("all.safetensors.tmp"));

  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->metadata().at("who"), "us");
  EXPECT_EQ(file->entries().size(), tensors.size());
  for (const NamedBytes& tensor : tensors) {
    const SafetensorsEntry* entry = file->find(tensor.plan.name);
    ASSERT_NE(entry, nullptr) << tensor.plan.name;
    EXPECT_EQ(entry->type, tensor.plan.type);
    EXPECT_EQ(entry->extents, tensor.plan.extents);
    EXPECT_EQ(text_of(entry->bytes), text_of(tensor.bytes)) << tensor.plan.name;
    const auto address = reinterpret_cast<std::uintptr_t>(entry->bytes.data());
    EXPECT_EQ(address % size_of(*entry->type), 0u) << tensor.plan.name;
  }
}

TEST(SafetensorsOutput, SeveralWriteOneFile) {
  const ModelFolder folder;
  const std::string path = folder.file("shared.safetensors");
  const auto layout = [] {
    return SafetensorsLayout::make(
               {{"left", DataType::uint8, {6}}, {"right", DataType::uint8, {4}}})
        .value();
  };
  Result<SafetensorsOutput> creator = SafetensorsOutput::create(path, layout());
  ASSERT_TRUE(creator.ok()) << creator.status().to_string();
  {
    Result<SafetensorsOutput> other = SafetensorsOutput::join(path, layout());
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    EXPECT_TRUE(other->write("left", 3, as_bytes_of("def")).ok());
    EXPECT_TRUE(other->write("right", 0, as_bytes_of("RI")).ok());
    EXPECT_TRUE(other->sync().ok());
  }
  EXPECT_TRUE(creator->write("left", 0, as_bytes_of("abc")).ok());
  EXPECT_EQ(creator->write("left", 4, as_bytes_of("xyz")).code(), StatusCode::invalid_argument);
  EXPECT_EQ(creator->write("left", 7, {}).code(), StatusCode::invalid_argument);
  EXPECT_EQ(creator->write("top", 0, {}).code(), StatusCode::invalid_argument);
  EXPECT_FALSE(folder.has("shared.safetensors"));
  ASSERT_TRUE(creator->commit().ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(text_of(file->find("left")->bytes), "abcdef");
  EXPECT_EQ(text_of(file->find("right")->bytes), std::string("RI\0\0", 4));
}

TEST(SafetensorsOutput, WhatIsNotCommittedLeavesTheOldFileAlone) {
  const ModelFolder folder;
  const std::string path = folder.put("x", "old");
  const SafetensorsLayout layout = SafetensorsLayout::make({{"a", DataType::uint8, {2}}}).value();
  {
    const Result<SafetensorsOutput> output = SafetensorsOutput::create(path, layout);
    ASSERT_TRUE(output.ok());
    EXPECT_TRUE(folder.has("x.tmp"));
    const SafetensorsLayout other = SafetensorsLayout::make({{"a", DataType::uint8, {3}}}).value();
    EXPECT_EQ(SafetensorsOutput::join(path, other).status().code(), StatusCode::system_error);
  }
  EXPECT_FALSE(folder.has("x.tmp"));
  EXPECT_EQ(folder.get("x"), "old");
  EXPECT_EQ(SafetensorsOutput::join(path, layout).status().code(), StatusCode::system_error);
}

TEST(SafetensorsOutput, SystemErrorsNameThePath) {
  const ModelFolder folder;
  const NamedBytes tensor{{"a", DataType::uint8, {2}}, as_bytes_of("ab")};
  const Status no_folder = write_safetensors(folder.file("no/x"), {&tensor, 1});
  EXPECT_EQ(no_folder.code(), StatusCode::system_error);
  EXPECT_THAT(no_folder.message(), HasSubstr(folder.file("no/x.tmp")));
  // A folder that is in the way of the name.
  ASSERT_EQ(::mkdir(folder.file("y").c_str(), 0777), 0);
  const Status in_the_way = write_safetensors(folder.file("y"), {&tensor, 1});
  EXPECT_EQ(in_the_way.code(), StatusCode::system_error);
  EXPECT_FALSE(folder.has("y.tmp"));
  const NamedBytes short_one{{"a", DataType::uint8, {3}}, as_bytes_of("ab")};
  EXPECT_EQ(write_safetensors(folder.file("z"), {&short_one, 1}).code(),
            StatusCode::invalid_argument);
  EXPECT_FALSE(folder.has("z.tmp"));
}

}  // namespace
}  // namespace tutti::training
