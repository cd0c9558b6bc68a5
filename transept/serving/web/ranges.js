// Places in the text of an element whose only child is a text node: ranges, the cursor, offsets.
// Called by transcript-view.js.

/**
 * A range of a segment's text, or null: the segment is not shown yet, or its text is another by now. Static: every
 * change of the document would look at each of thousands of live ones.
 */
export function rangeIn(text, { from, to }) {
  if (!text) return null;
  text.normalize();
  const node = text.firstChild;
  if (node?.nodeType !== Node.TEXT_NODE || to > node.length || from < 0) return null;
  return new StaticRange({ startContainer: node, startOffset: from, endContainer: node, endOffset: to });
}

/** The offset of what a mouse event points at. */
export function offsetAt({ clientX, clientY }, text) {
  const caret = document.caretPositionFromPoint
    ? document.caretPositionFromPoint(clientX, clientY)
    : document.caretRangeFromPoint?.(clientX, clientY);
  const node = caret?.offsetNode ?? caret?.startContainer;
  return node && text.contains(node) && node.nodeType === Node.TEXT_NODE ? (caret.offset ?? caret.startOffset) : 0;
}

/** Where the selection begins and ends; at the end of the text where it is elsewhere. */
export function selectionOffsets(text) {
  const selection = getSelection();
  if (!selection.rangeCount || !text.contains(selection.anchorNode)) return [text.textContent.length, text.textContent.length];
  const range = selection.getRangeAt(0);
  const before = new Range();
  before.setStart(text, 0);
  before.setEnd(range.startContainer, range.startOffset);
  const from = before.toString().length;
  return [from, from + range.toString().length];
}

/** The cursor's offset. */
export const caretOffset = (text) => selectionOffsets(text)[0];

export function setCaret(text, offset) {
  text.normalize();
  const node = text.firstChild ?? text;
  getSelection().collapse(node, node.nodeType === Node.TEXT_NODE ? Math.min(offset, node.length) : 0);
}
