"""Loaders: files and folders in, documents out.

In comes a path; out come `Document` records whose blocks are paragraphs with page, headings
and character offsets. Nothing is rewritten beyond what a format demands: line ends become
line feeds, markup of HTML and the line breaks of PDF go, and the offsets count in the text that is
left.

Read `files` (which files, bytes to text) and `documents` (which loader), then one file a format:
`text` (Markdown and front matter too), `html`, `pdf`, `jsonl`.

The room never writes anything, never follows a link out of the folder that it was given, and
never guesses an encoding.
"""
