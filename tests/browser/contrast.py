"""Whether the text of a page can be read."""

from __future__ import annotations

from playwright.sync_api import Page

# The signs for white space are no text.
_PALE = """selector => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const over = colors => {
    for (const color of ['white', ...colors]) {
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(value => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = one => one
    ? [...behind(one.parentElement), getComputedStyle(one).backgroundColor] : [];
  const contrast = one => {
    const colors = behind(one);
    const ground = light(over(colors));
    const ink = light(over([...colors, getComputedStyle(one).color]));
    return (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
  };
  const isText = one => [...one.childNodes].some(
    node => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  const all = [...document.querySelectorAll(selector)];
  const texts = all.filter(one => isText(one) && one.checkVisibility()
    && !one.closest('svg, script, style, i'));
  const pale = texts.filter(one => contrast(one) < 4.5);
  return {num: texts.length, pale: pale.map(one => one.outerHTML.slice(0, 200))};
}"""


def pale_texts(page: Page, selector: str) -> tuple[int, list[str]]:
    """Count the texts that are seen, and give those with a contrast below 4.5."""
    read = page.evaluate(_PALE, selector)
    return read["num"], read["pale"]
