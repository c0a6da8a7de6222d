// Small things kept between visits: settings, language, theme, the key if its owner wishes so.

const PREFIX = "octavo.";

// Both give null where the browser keeps nothing for this page.
export function recall(name, area = "localStorage") {
  try {
    return JSON.parse(window[area].getItem(PREFIX + name));
  } catch {
    return null;
  }
}

export function remember(name, value, area = "localStorage") {
  try {
    if (value === null) window[area].removeItem(PREFIX + name);
    else window[area].setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is full or switched off: it lasts as long as the page does.
  }
}
