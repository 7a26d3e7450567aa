// Hyperparameters of a job: those of its sweep, the arguments of its command (`--name value`, `--name=value`, `name=value`) and its
// environment variables. Pure.

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
const OPTION = /^--?([A-Za-z][\w.-]*)(?:=(.*))?$/s;
const ASSIGNMENT = /^([A-Za-z_][\w.-]*)=(.*)$/s;
/** An unquoted character after which another command or a redirection begins. */
const OPERATOR = /[;|&<>\n]/;
/** Variables of the services, not of the script. */
const SERVICE_VARIABLE = /^(CORRO|AZ_BATCHAI)_/;

/** The value as a number if it is one. */
export const numberOr = (text) => (typeof text === 'string' && NUMBER.test(text) ? Number(text) : text);

/** `Map` of names to texts, in the order of the sweep, the arguments and the environment. */
export function parametersOf(properties) {
  const parameters = new Map();
  const add = (name, value) => { if (!parameters.has(name)) parameters.set(name, String(value)); };
  for (const { name, value } of properties.sweep?.parameters ?? []) add(name, value);
  for (const [field, settings] of Object.entries(properties)) {
    if (!field.endsWith('Settings') || !settings) continue;
    if (settings.commandLineArgs) argumentsOf(splitWords(settings.commandLineArgs)).forEach((value, name) => add(name, value));
    if (settings.commandLine) argumentsOf(scriptArguments(splitWords(settings.commandLine))).forEach((value, name) => add(name, value));
  }
  for (const { name, value } of properties.environmentVariables ?? []) if (!SERVICE_VARIABLE.test(name)) add(name, value);
  return parameters;
}

/** Words of a command line as a shell reads them, up to the first operator. */
export function splitWords(line) {
  const words = [];
  let [word, quote] = [null, null];
  for (let at = 0; at < line.length; at += 1) {
    const char = line[at];
    if (quote) {
      if (char === quote) quote = null;
      else if (char === '\\' && quote === '"' && at + 1 < line.length) word += line[++at];
      else word += char;
    } else if (char === "'" || char === '"') [word, quote] = [word ?? '', char];
    else if (char === '\\' && at + 1 < line.length) word = (word ?? '') + line[++at];
    else if (OPERATOR.test(char)) break;
    else if (/\s/.test(char)) { if (word !== null) words.push(word); word = null; } else word = (word ?? '') + char;
  }
  if (word !== null) words.push(word);
  return words;
}

// The words after the program, or after the script of a Python interpreter, with the assignments before them.
function scriptArguments(words) {
  const base = (word) => word.slice(word.lastIndexOf('/') + 1);
  const shell = words.findIndex((word, at) => /^(ba|da|z)?sh$/.test(base(word)) && /^-\w*c$/.test(words[at + 1] ?? ''));
  if (shell >= 0 && words[shell + 2] !== undefined) return scriptArguments(splitWords(words[shell + 2]));
  const python = words.findIndex((word) => /^python[\d.]*$/.test(base(word)));
  const program = python >= 0 ? python : words.findIndex((word) => !ASSIGNMENT.test(word) && base(word) !== 'env');
  if (program < 0) return words;
  let rest = program + 1;
  if (python >= 0) {
    while (words[rest]?.startsWith('-') && words[rest] !== '-m') rest += 1;
    rest += words[rest] === '-m' ? 2 : 1;
  }
  return [...words.slice(0, program).filter((word) => ASSIGNMENT.test(word)), ...words.slice(rest)];
}

// Values of options and assignments. An option without a value is `true`; repeated values are joined.
function argumentsOf(words) {
  const found = new Map();
  const add = (name, value) => found.set(name, found.has(name) ? `${found.get(name)} ${value}` : value);
  let open = null;
  const close = () => { if (open !== null) add(open, 'true'); open = null; };
  for (const word of words) {
    const option = NUMBER.test(word) ? null : OPTION.exec(word);
    const assignment = option ? null : ASSIGNMENT.exec(word);
    if (option) {
      close();
      if (option[2] === undefined) [, open] = option;
      else add(option[1], option[2]);
    } else if (open !== null) {
      add(open, word);
      open = null;
    } else if (assignment) add(assignment[1], assignment[2]);
  }
  close();
  return found;
}
