// token_file_test.cc: token files of every format written and read again, what must be refused of
// them, and several files as one corpus.
#include "training/data/token_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "training/data/byte_tokenizer.hpp"
#include "training/data/corpus.hpp"

namespace tutti::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Tokens = std::vector<std::int32_t>;

// A folder of its own for each test, gone after it.
class TokenFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tutti_tokens_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string put(const std::string& name, std::string_view bytes) const {
    EXPECT_TRUE(write_file(path(name), bytes).ok());
    return path(name);
  }

  std::string put_tokens(const std::string& name, TokenFormat format, const Tokens& tokens,
                         std::int64_t token_bytes = 2) const {
    auto writer = TokenWriter::create(path(name), format, token_bytes);
    EXPECT_TRUE(writer.ok());
    EXPECT_TRUE(writer->append(tokens).ok());
    EXPECT_TRUE(writer->finish().ok());
    return path(name);
  }

  std::string folder_;
};

Tokens all_of(const TokenFile& file) {
  Tokens tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

// A header as llm.c writes it, independent of TokenWriter.
std::string header(std::int32_t magic, std::int32_t version, std::int32_t count,
                   std::int32_t width = 0) {
  std::string bytes(1024, '\0');
  const std::int32_t words[] = {magic, version, count, width};
  std::memcpy(bytes.data(), words, sizeof(words));
  return bytes;
}

TEST_F(TokenFiles, TextIsItsBytes) {
  const auto file = TokenFile::open(put("a.txt", "Az\xff"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(all_of(*file), ElementsAre('A', 'z', 255));
  EXPECT_EQ(file->format(), TokenFormat::text);
  EXPECT_EQ(file->vocabulary_bound(), 256);
  Tokens part(2);
  file->read(1, part);
  EXPECT_THAT(part, ElementsAre('z', 255));
}

TEST_F(TokenFiles, ReadsWhatLlmcAndNanogptWrite) {
  using namespace std::string_literals;
  const auto small = TokenFile::open(put("s.bin", header(20240520, 1, 2) + "\x01\x02\xff\xff"s));
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  EXPECT_THAT(all_of(*small), ElementsAre(0x0201, 0xffff));
  const auto large =
      TokenFile::open(put("l.bin", header(20240801, 7, 2) + "\x01\x00\x01\x00\xff\xff\xff\xff"s));
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_THAT(all_of(*large), ElementsAre(0x10001, 0x7fffffff));
  const auto wide = TokenFile::open(put("w.bin", header(278895051, 1, 1, 4) + "\x01\x00\x01\x00"s));
  ASSERT_TRUE(wide.ok()) << wide.status().to_string();
  EXPECT_THAT(all_of(*wide), ElementsAre(0x10001));
}

TEST_F(TokenFiles, EveryFormatReadsWhatTheWriterWrote) {
  struct Case {
    TokenFormat format;
    std::int64_t token_bytes;
    std::int32_t highest;
  };
  for (const Case& c :
       {Case{TokenFormat::text, 1, 255}, Case{TokenFormat::llmc, 2, 65535},
        Case{TokenFormat::llmc_llama3, 4, 128255}, Case{TokenFormat::nanogpt, 2, 65535},
        Case{TokenFormat::nanogpt, 4, 1 << 30}}) {
    const Tokens tokens = {0, 1, c.highest, 7};
    const auto file = TokenFile::open(put_tokens("x.dat", c.format, tokens, c.token_bytes));
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(file->format(), c.format);
    EXPECT_EQ(all_of(*file), tokens) << to_string(c.format);
    EXPECT_GT(file->vocabulary_bound(), c.highest);
    EXPECT_TRUE(file->check_vocabulary(c.highest + 1).ok());
  }
}

TEST_F(TokenFiles, NamesTheFirstTokenPastTheVocabulary) {
  const auto file = TokenFile::open(put_tokens("x.bin", TokenFormat::llmc, {3, 50256, 50257}));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->check_vocabulary(65536).ok());
  EXPECT_TRUE(file->check_vocabulary(50258).ok());
  const Status status = file->check_vocabulary(50257);
  EXPECT_EQ(status.code(), StatusCode::corrupt_data);
  EXPECT_THAT(status.message(), HasSubstr("token 2 is 50257"));
  // One that no int32 can hold is in no vocabulary.
  const auto wide = TokenFile::open(put("w.bin", header(20240801, 7, 1) + "\xff\xff\xff\xff"));
  ASSERT_TRUE(wide.ok());
  EXPECT_FALSE(wide->check_vocabulary(std::int64_t{1} << 31).ok());
}

TEST_F(TokenFiles, RefusesWhatIsCutOffOrDoesNotAddUp) {
  const std::string whole = header(20240520, 1, 3) + "aabbcc";
  const std::pair<std::string, std::string> cases[] = {
      {whole.substr(0, whole.size() - 1), "has 1029 bytes, but 3 tokens of 2 bytes and the header"},
      {whole + "d", "has 1031 bytes"},
      {whole.substr(0, 1023), "header alone should be 1024 bytes, and the file has 1023"},
      {header(20240520, 2, 3) + "aabbcc", "version 2"},
      {header(20240520, 1, 0), "0 tokens"},
      {header(20240520, 1, -3) + "aabbcc", "-3 tokens"},
      {header(20240801, 1, 1) + "aaaa", "we read version 7"},
      {header(278895051, 1, 2, 3) + "aaabbb", "3 bytes for a token"},
      {header(278895051, 1, 2147483647, 4), "8589935612"},
      {"neither", "begins like no known token file"},
      {"", "empty"},
  };
  for (const auto& [bytes, text] : cases) {
    const auto file = TokenFile::open(put("x.bin", bytes));
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_EQ(file.status().code(), StatusCode::corrupt_data);
    EXPECT_THAT(file.status().message(), HasSubstr(text));
    EXPECT_THAT(file.status().message(), HasSubstr("x.bin"));
  }
}

TEST_F(TokenFiles, RefusesWhatIsNoFile) {
  EXPECT_EQ(TokenFile::open(path("none")).status().code(), StatusCode::system_error);
  EXPECT_EQ(TokenFile::open(folder_).status().code(), StatusCode::invalid_argument);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(TokenFile::open(path("pipe")).status().code(), StatusCode::invalid_argument);
}

TEST_F(TokenFiles, AWriterRefusesWhatTheFormatCannotHold) {
  auto writer = TokenWriter::create(path("x.bin"), TokenFormat::llmc);
  ASSERT_TRUE(writer.ok());
  const Status status = writer->append(Tokens{1, 65536});
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("token 65536 does not fit llmc, which holds 0 to 65535"));
  EXPECT_FALSE(writer->append(Tokens{-1}).ok());
  EXPECT_TRUE(writer->append(Tokens{5}).ok());
  EXPECT_TRUE(writer->finish().ok());
  EXPECT_THAT(all_of(*TokenFile::open(path("x.bin"))), ElementsAre(5));
  EXPECT_FALSE(TokenWriter::create(path("y.bin"), TokenFormat::nanogpt, 3).ok());
}

TEST_F(TokenFiles, AnUnfinishedFileLeavesNothing) {
  {
    auto writer = TokenWriter::create(path("x.bin"), TokenFormat::llmc);
    ASSERT_TRUE(writer.ok() && writer->append(Tokens{5}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

using CorpusFiles = TokenFiles;

TEST_F(CorpusFiles, FilesFollowEachOtherInTheOrderOfTheirNames) {
  put("b.txt", "BB");
  put("a.txt", "aaa");
  put("c.txt", "C");
  const auto corpus = Corpus::open(std::vector<std::string>{path("[ac].txt"), path("b.txt")}, 0);
  ASSERT_TRUE(corpus.ok()) << corpus.status().to_string();
  ASSERT_EQ(corpus->size(), 6);
  for (std::int64_t begin = 0; begin <= 6; ++begin) {
    for (std::int64_t end = begin; end <= 6; ++end) {
      Tokens part(static_cast<std::size_t>(end - begin));
      corpus->read(begin, part);
      EXPECT_EQ(*decode_bytes(part),
                std::string("aaaCBB").substr(static_cast<std::size_t>(begin), part.size()));
    }
  }
  EXPECT_EQ(corpus->validation().size(), 0);
}

TEST_F(CorpusFiles, TheTailIsHeldOut) {
  const std::vector<std::string> files = {put("a", std::string(95, 'a')), put("b", "bbbbb")};
  EXPECT_EQ(Corpus::open(files)->train(), (TokenRange{0, 90}));
  EXPECT_EQ(Corpus::open(files)->validation(), (TokenRange{90, 100}));
  EXPECT_EQ(Corpus::open(files, 0.035)->validation(), (TokenRange{97, 100}));
  for (const double share : {-0.1, 1.0, std::nan("")})
    EXPECT_EQ(Corpus::open(files, share).status().code(), StatusCode::invalid_argument);
}

TEST_F(CorpusFiles, ANameWithBracketsIsThatFile) {
  const std::vector<std::string> files = {put("x[1].txt", "yes")};
  const auto corpus = Corpus::open(files);
  ASSERT_TRUE(corpus.ok()) << corpus.status().to_string();
  EXPECT_EQ(corpus->size(), 3);
}

TEST_F(CorpusFiles, RefusesFilesThatMakeNoSequence) {
  const std::string text = put("a.txt", "abc");
  const std::string tokens = put_tokens("t.bin", TokenFormat::llmc, {1, 2});
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{text, path("*.txt")}, "named twice"},
      {{text, tokens}, "one tokenizer"},
      {{path("*.none")}, "no file matches"},
      {{}, "at least one file"},
  };
  for (const auto& [patterns, wanted] : cases) {
    const auto corpus = Corpus::open(patterns);
    ASSERT_FALSE(corpus.ok()) << wanted;
    EXPECT_EQ(corpus.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(corpus.status().message(), HasSubstr(wanted));
  }
}

// Where the default corpus is looked for, while it lives.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& folder) {
    if (const char* was = std::getenv("XDG_CACHE_HOME")) before_ = was;
    ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  }
  ~CacheFolder() {
    if (before_.empty())
      ::unsetenv("XDG_CACHE_HOME");
    else
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST_F(CorpusFiles, TheDefaultOneIsFoundOrItsPackageIsNamed) {
  const CacheFolder cache(folder_);
  const auto none = default_corpus_path();
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("apt-get install bible-kjv"));
  ASSERT_TRUE(make_folder(path("tutti")).ok());
  put("tutti/bible-kjv.txt", "In the beg");
  EXPECT_THAT(default_corpus_path().status().message(), HasSubstr("has only 10 bytes"));
  put("tutti/bible-kjv.txt", std::string(4'400'000, 'x'));
  ASSERT_TRUE(default_corpus_path().ok());
  EXPECT_EQ(*default_corpus_path(), path("tutti/bible-kjv.txt"));
}

TEST(ByteTokenizer, DecodesWhatItEncoded) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  const Tokens tokens = encode_bytes(text);
  EXPECT_EQ(tokens[200], 200);
  EXPECT_EQ(*decode_bytes(tokens), text);
  for (const std::int32_t bad : {-1, 256}) {
    const auto decoded = decode_bytes(Tokens{65, bad});
    EXPECT_EQ(decoded.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(decoded.status().message(), HasSubstr("token 1 is " + std::to_string(bad)));
  }
}

}  // namespace
}  // namespace tutti::training
