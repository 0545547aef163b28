// Colours for ```mgraph fences, which the book's highlighter does not know.
hljs.registerLanguage("mgraph", (hljs) => ({
  keywords: {
    keyword:
      "family config section limit require processor numerics contract type op block model state graph fn let mut for in if else as " +
      "ignore fused when within one_of index ulp of",
    literal: "true false",
    type: "F Q f32 f16 bf16 f64 i32 u32 u8 bool dim int float name",
  },
  contains: [
    hljs.C_LINE_COMMENT_MODE,
    hljs.C_BLOCK_COMMENT_MODE,
    { className: "string", begin: '"', end: '"', illegal: "\\n", contains: [{ begin: "\\\\." }] },
    { className: "number", begin: "\\b[0-9][0-9_]*(\\.[0-9][0-9_]*)?([eE][+-]?[0-9]+)?" },
  ],
}));
for (const code of document.querySelectorAll("code.language-mgraph")) {
  code.innerHTML = hljs.highlight("mgraph", code.textContent).value;
}
