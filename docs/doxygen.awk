# SPDX-License-Identifier: Apache-2.0
#
# Makes documentation of the comments of our headers, for Doxygen to read like any other: // in front of a
# declaration becomes ///, behind one ///<. Indented lines of a comment are tables, formulas and code; they
# keep their form, but what is a command in them is one. No line is added or removed, so that line numbers stay
# right.
function escaped(text) {
  gsub(/[<>&#%"$]/, "\\\\&", text)
  gsub(/--/, "\\--", text)
  return text
}
function flush_line() {
  if (is_held) print held (is_table ? "</pre>" : "")
  is_held = is_table = 0
}
/^ *\/\/ SPDX/ { print "/// \\file"; next }
/^ *\/\// {
  margin = match($0, /\/\//)
  text = substr($0, margin + 2)
  if (margin == behind) {  # the comment behind the declaration above goes on
    print "///<" escaped(text)
    next
  }
  behind = 0
  belongs = text ~ /^   /
  if (is_held) print held (is_table && !belongs ? "</pre>" : "")
  held = "///" (belongs && !is_table ? " <pre>" : "") escaped(substr(text, belongs && !is_table ? 2 : 1))
  is_held = 1
  is_table = belongs
  next
}
{
  flush_line()
  at = match($0, /[;,{] +\/\/ /)
  behind = 0
  if (at > 0 && $0 !~ /^ *#/) {
    behind = at + RLENGTH - 3
    print substr($0, 1, at) " ///< " escaped(substr($0, at + RLENGTH))
  } else {
    print
  }
}
END { flush_line() }
