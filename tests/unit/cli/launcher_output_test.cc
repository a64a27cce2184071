// launcher_output_test.cc: bytes of several ranks become whole lines of one stream.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>

#include "cli/launcher/output.hpp"

namespace tutti::cli::launcher {
namespace {

// A sink on a pipe, and what came out at its other end.
class OutputTest : public testing::Test {
 protected:
  OutputTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_NONBLOCK), 0);
    read_ = ends[0];
    write_ = ends[1];
    sink_ = Sink(write_);
  }
  ~OutputTest() override {
    close_reader();
    close(write_);
  }

  void close_reader() {
    if (read_ >= 0) close(read_);
    read_ = -1;
  }

  std::string take() {
    std::string result;
    std::array<char, 65536> buffer;
    while (true) {
      if (!sink_.empty()) sink_.write_some();
      const ssize_t size = read(read_, buffer.data(), buffer.size());
      if (size <= 0) return result;
      result.append(buffer.data(), static_cast<std::size_t>(size));
    }
  }

  int read_ = -1, write_ = -1;
  Sink sink_{-1};
};

TEST_F(OutputTest, EachLineGetsThePrefixHoweverTheBytesCome) {
  const std::string text = "one\n\nthree\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineStream stream("[3] ", sink_);
    stream.feed(text.substr(0, cut));
    stream.feed(text.substr(cut));
    stream.finish();
    EXPECT_EQ(take(), "[3] one\n[3] \n[3] three\n") << "cut at " << cut;
  }
}

TEST_F(OutputTest, LinesOfTwoRanksDoNotMix) {
  LineStream zero("[0] ", sink_), one("[1] ", sink_);
  zero.feed("a1 ");
  one.feed("b1 ");
  zero.feed("a2\na3 ");
  one.feed("b2\n");
  zero.feed("a4\n");
  EXPECT_EQ(take(), "[0] a1 a2\n[1] b1 b2\n[0] a3 a4\n");
}

TEST_F(OutputTest, WithoutPrefixBytesStayAsTheyAre) {
  LineStream stream("", sink_);
  stream.feed("a\nb");
  stream.finish();
  EXPECT_EQ(take(), "a\nb");
}

TEST_F(OutputTest, LastLineWithoutEndKeepsToItself) {
  LineStream zero("", sink_), one("[1] ", sink_);
  zero.feed("no end");
  zero.finish();
  one.feed("line\nno end");
  one.finish();
  EXPECT_EQ(take(), "no end\n[1] line\n[1] no end");
}

TEST_F(OutputTest, EndlessLineIsPassedOnInPieces) {
  LineStream stream("", sink_);
  const std::string piece(300'000, 'x');
  std::string all;
  for (int i = 0; i < 5; ++i) {
    stream.feed(piece);
    all += take();
  }
  EXPECT_GE(all.size(), std::size_t{1} << 20);
  stream.finish();
  EXPECT_EQ((all + take()).size(), 5 * piece.size());
}

TEST_F(OutputTest, FullSinkTakesNoMore) {
  LineStream stream("", sink_);
  EXPECT_TRUE(stream.can_take());
  stream.feed(std::string(2 << 20, 'x') + "\n");
  EXPECT_FALSE(stream.can_take());
  EXPECT_EQ(take().size(), (std::size_t{2} << 20) + 1);
  EXPECT_TRUE(stream.can_take());
  EXPECT_TRUE(sink_.empty());
}

TEST_F(OutputTest, LostReaderIsNoticedAndTheRestDropped) {
  signal(SIGPIPE, SIG_IGN);
  LineStream stream("", sink_);
  stream.feed("a\n");
  close_reader();
  EXPECT_FALSE(sink_.lost());
  sink_.write_some();
  EXPECT_TRUE(sink_.lost());
  stream.feed("b\n");
  EXPECT_TRUE(sink_.empty());
}

}  // namespace
}  // namespace tutti::cli::launcher
