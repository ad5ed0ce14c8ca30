# SPDX-License-Identifier: Apache-2.0
#
# Shows Doxygen the comments of our headers as they are: a run of // lines becomes a verbatim block, a comment
# behind a declaration its brief. No line is added or removed, so that line numbers stay right.
function close_block() {
  if (held != "") print held (open_block ? " \\endverbatim */" : "")
  held = ""
  open_block = 0
}
/^ *\/\/ SPDX/ { print "/** \\file"; next }
/^ *\/\// {
  text = $0
  sub(/^ *\/\/ ?/, "", text)
  gsub(/\*\//, "* /", text)
  if (open_block) {
    print held
    held = text
  } else {
    held = (NR == 2 ? "\\verbatim " : "/** \\verbatim ") text
    open_block = 1
  }
  next
}
{
  close_block()
  at = match($0, /[;,{] +\/\/ /)
  if (at > 0 && $0 !~ /^ *#/) {
    text = substr($0, at + RLENGTH)
    gsub(/[<>&\\@#%"$]/, "\\\\&", text)
    print substr($0, 1, at) " ///< " text
  } else {
    print
  }
}
END { close_block() }
