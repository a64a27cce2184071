// Elements and attributes, and what is refused.
#include "topology/xml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tutti::topology {
namespace {

using ::testing::HasSubstr;

TEST(Xml, ReadsElementsAndAttributes) {
  const auto root = parse_xml(
      "<?xml version=\"1.0\"?>\n<!DOCTYPE a SYSTEM \"a.dtd\">\n<!-- who wrote this -->\n"
      "<a x='1' y = \"two words\"\n   z=\"&lt;&amp;&gt; &quot;&apos; &other;\">\n"
      "  <b/> <!-- <c/> -->\n  <d.e-f_g:h>\n    <b n=\"2\"></b >\n  </d.e-f_g:h>\n</a>\n");
  ASSERT_TRUE(root.ok()) << root.status().message();
  EXPECT_EQ(root->name, "a");
  EXPECT_EQ(root->line, 4);
  EXPECT_EQ(root->attribute("x"), "1");
  EXPECT_EQ(root->attribute("y"), "two words");
  EXPECT_EQ(root->attribute("z"), "<&> \"' &other;");
  EXPECT_EQ(root->attribute("w"), "");
  ASSERT_EQ(root->children.size(), 2U);
  EXPECT_EQ(root->children[0].name, "b");
  EXPECT_EQ(root->children[1].name, "d.e-f_g:h");
  ASSERT_EQ(root->children[1].children.size(), 1U);
  EXPECT_EQ(root->children[1].children[0].attribute("n"), "2");
  EXPECT_EQ(root->children[1].children[0].line, 8);
}

TEST(Xml, SaysWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "line 1: an element is expected"},
      {"\n\n<", "line 3: an element has no name"},
      {"<a", "line 1: <a> does not end"},
      {"<a>\n", "line 2: <a> does not end"},
      {"<a>\n<b></a>", "line 2: </b> is expected, for line 2"},
      {"<a/>\n<b/>", "line 2: there is something behind"},
      {"<a x/>", "attribute x has no value"},
      {"<a x=1/>", "the value of x is not in quotes"},
      {"<a x=\"1/>", "the value of x does not end"},
      {"<a>text</a>", "<a> does not end"},
      {"<a><!-- </a>", "a comment does not end"},
      {"<?xml", "a declaration does not end"},
      {"<a><![CDATA[ ]]></a>", "an element has no name"},
  };
  for (const auto& [text, what] : wrong) {
    const auto root = parse_xml(text);
    ASSERT_FALSE(root.ok()) << text;
    EXPECT_EQ(root.status().code(), StatusCode::corrupt_data);
    EXPECT_THAT(root.status().message(), HasSubstr(what)) << text;
  }
}

TEST(Xml, HasLimits) {
  const auto nested = [](std::size_t depth) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += "<a>";
    for (std::size_t i = 0; i < depth; ++i) text += "</a>";
    return text;
  };
  EXPECT_TRUE(parse_xml(nested(64)).ok());
  EXPECT_THAT(parse_xml(nested(65)).status().message(), HasSubstr("too deep"));
  std::string many = "<a>";
  for (int i = 0; i < 100'000; ++i) many += "<b/>";
  EXPECT_THAT(parse_xml(many + "</a>").status().message(), HasSubstr("too many elements"));
}

TEST(Xml, TellsTheOutermostNameAlone) {
  EXPECT_EQ(xml_root_name("<?xml?><!-- x --> <system version=\"1\">"), "system");
  EXPECT_EQ(xml_root_name("<topology/>"), "topology");
  EXPECT_EQ(xml_root_name("<!-- "), "");
  EXPECT_EQ(xml_root_name("{}"), "");
}

}  // namespace
}  // namespace tutti::topology
