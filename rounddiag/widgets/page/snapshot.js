// @ts-check
// A picture of the page, which the notebook keeps for when there is no kernel.
// Long enough not to interfere while someone steps through samples.
const SNAPSHOT_DELAY = 3000;
const MOST_BYTES = 100_000;
const [HALF, GAP, LINE] = [590, 16, 20];

function snapshots(page) {
  let [timer, isClosed] = [0, false];

  async function send() {
    if (isClosed || !page.node.isConnected) return;
    const data = await (await snapshotOf(page)).arrayBuffer();
    if (!isClosed) await page.kernel.request("snapshot", {}, [data]);
  }

  return {
    later: () => {
      clearTimeout(timer);
      timer = setTimeout(() => send().catch(ignore), SNAPSHOT_DELAY);
    },
    close: () => {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

// Two columns, as on the page: the overview, and the current sample.
async function snapshotOf({ overview, sample, node }) {
  const left = await Promise.all(overview.figures.map(figurePicture));
  const right = [await figurePicture(sample.figure)];
  const height = (column) => column.reduce((sum, one) => sum + one.height + GAP, 2 * LINE);
  const canvas = document.createElement("canvas");
  canvas.width = 2 * HALF + GAP;
  canvas.height = Math.max(height(left), height(right));
  const pen = canvas.getContext("2d");
  const look = getComputedStyle(node);
  pen.fillStyle = look.getPropertyValue("--paper");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = look.getPropertyValue("--text");
  pen.font = `600 13px ${look.getPropertyValue("--font")}`;
  const name = [...node.querySelectorAll(".rdx-name > *")].map((part) => part.textContent);
  pen.fillText(name.filter(Boolean).join(" · "), 14, LINE, HALF - 28);
  pen.fillText(sample.title(), HALF + GAP + 14, LINE, HALF - 28);
  stack(pen, left, 0);
  stack(pen, right, HALF + GAP);
  return smallJpeg(canvas);
}

// The best quality that fits the size by which a saved notebook may grow.
async function smallJpeg(canvas) {
  let data = null;
  for (const quality of [0.8, 0.6, 0.4, 0.2]) {
    data = await new Promise((done) => canvas.toBlob(done, "image/jpeg", quality));
    if (data.size <= MOST_BYTES) break;
  }
  return data;
}

function stack(pen, pictures, x) {
  let y = LINE + GAP;
  for (const picture of pictures) {
    pen.drawImage(picture, x, y);
    y += picture.height + GAP;
  }
}

async function figurePicture(view) {
  const picture = new Image();
  picture.src = await view.picture({ width: HALF, height: view.height(), scale: 1 });
  await picture.decode();
  return picture;
}
