// Job page: state and explanation, curves, tabs with log, ranks, engine and job.json, files, history, and actions. Refreshes on the
// job's events.

import { api } from '../api.js';
import { h, keyed, mark, put, text } from '../dom.js';
import { cloneJob } from '../job-clone.js';
import { JobEngines } from '../job-engines.js';
import { JobFiles } from '../job-files.js';
import { JobLogs } from '../job-logs.js';
import { JobNotes } from '../job-notes.js';
import { JobRanks } from '../job-ranks.js';
import { JobSize } from '../job-size.js';
import { JobSource } from '../job-source.js';
import { refreshOn } from '../event-stream.js';
import { confirm, setState, toast } from '../components.js';
import { clock, setLasting, short } from '../times.js';
import { numberOf } from '../node-tiles.js';
import { allowNotifications, isNotified, setNotified } from '../notifications.js';
import { nameOf, pageOf, partsOf } from '../routes.js';
import { CurvePanel } from '../curve-panel.js';
import { ResourceCharts } from '../resource-charts.js';
import { Tabs } from '../tabs.js';

const ACTIVE = new Set(['queued', 'running', 'terminating']);

export async function show(root, params, context) {
  const id = `${params.workspace}/experiments/${encodeURIComponent(params.experiment)}/jobs/${encodeURIComponent(params.name)}`;
  context.title(params.name);
  let job = await api.get(id);
  const parts = partsOf(job.id);
  const badge = h('span', { class: 'state' });
  const stages = h('ol', { class: 'stages', 'aria-label': 'States' });
  const why = h('div', { class: 'note why', role: 'status' });
  const facts = h('dl', { class: 'panel facts' });
  const steps = h('ol', { class: 'steps' });
  const stepsPanel = h('section', { class: 'panel' }, h('header', null, h('h2', null, 'Events')), steps);
  const terminate = h('button', { type: 'button', class: 'danger', id: 'terminate', onclick: () => terminateJob() }, 'Terminate');
  const clone = h('button', { type: 'button', id: 'clone', onclick: () => cloneJob(job, context) }, 'Clone');
  const notify = h('button', { type: 'button', id: 'notify', hidden: true, 'aria-pressed': String(isNotified(job.id)), title: 'A notification of the browser when the job ends', onclick: async () => {
    const isWanted = !isNotified(job.id);
    if (isWanted && !await allowNotifications()) {
      toast('The browser does not allow notifications. Allow them for this page in its settings; they need HTTPS, or a server on this machine.', 'bad');
      return;
    }
    setNotified(job.id, isWanted);
    mark(notify, 'aria-pressed', String(isWanted));
  } }, 'Notify me');
  const engines = new JobEngines(job.id, job.name, (hasContent) => tabs.setAvailable('engine', hasContent));
  const ranks = new JobRanks(job.id, (processes) => engines.set(processes), (count) => tabs.setAvailable('ranks', count > 0));
  const empty = 'No curves yet. They appear when the job prints lines with losses, accuracies or any key=value.';
  const plots = new CurvePanel({ file: job.name, empty });
  const logs = new JobLogs(job.id, () => tabs.choose('log'));
  const source = new JobSource(job.name);
  const notes = new JobNotes(job.id);
  const size = new JobSize();
  const resources = new ResourceCharts(job.name, 'resources');
  const tabs = new Tabs('Details', [
    { name: 'log', title: 'Log', element: logs.element },
    { name: 'ranks', title: 'Ranks', element: ranks.element, isAvailable: false, onShow: () => refreshRanks() },
    { name: 'engine', title: 'Engine', element: engines.element, isAvailable: false, onShow: () => refreshRanks() },
    { name: 'resources', title: 'Resources', element: resources.element, isAvailable: false },
    { name: 'source', title: 'job.json', element: source.element },
  ]);
  const files = new JobFiles(job, (name, link, renew) => logs.show(name, link, renew));
  plots.choose([{ id: job.id, label: job.name, ink: 0 }]);
  put(root,
    h('nav', { class: 'crumbs', 'aria-label': 'Where' }, h('a', { href: '/ui/jobs' }, 'Jobs'), h('span', null, parts.workspaces),
      h('a', { href: pageOf(job.id.replace(/\/jobs\/[^/]*$/, '')) }, parts.experiments)),
    h('div', { class: 'head' }, h('h1', null, job.name), badge, notes.tags, h('span', { class: 'grow' }), notes.pin, notify, notes.edit, clone, terminate),
    notes.element, stages, why, facts, size.element, plots.element, tabs.element, h('div', { class: 'columns' }, files.element, stepsPanel));

  function refreshRanks() {
    if (job.properties.executionState === 'running') ranks.refresh();
  }

  // CPU and memory as the server has recorded them; nothing for a job from before its start.
  async function refreshResources() {
    if (job.properties.executionState === 'queued') return;
    const { nodes } = await api.get(`${job.id}/resources`);
    const start = Date.parse(job.properties.executionInfo?.startTime);
    resources.set(nodes.map(({ nodeId, points }) => ({ label: nodes.length > 1 ? `node ${numberOf(nodeId)}` : 'all processes', points })), start);
    tabs.setAvailable('resources', resources.hasPoints);
  }

  async function terminateJob() {
    const confirmed = await confirm(`Terminate ${job.name}?`,
      'Its processes get a termination signal and are killed after a grace period. Files already written are kept.', 'Terminate');
    if (!confirmed) return;
    try {
      await api.post(`${job.id}/terminate`);
      toast(`${job.name} is being terminated.`);
      await refresh();
    } catch (error) { toast(error.message, 'bad'); }
  }

  function draw(explanation) {
    const state = job.properties.executionState;
    setState(badge, state);
    for (const button of [terminate, notify]) mark(button, 'hidden', ACTIVE.has(state) ? null : '');
    mark(terminate, 'disabled', state === 'terminating' ? '' : null);
    drawStages(stages, job.properties);
    drawWhy(why, explanation, state);
    drawFacts(facts, job.properties, explanation.owner);
    drawSteps(steps, explanation.steps ?? []);
    ranks.set(job.properties, explanation.steps ?? []);
    logs.setProperties(job.properties);
    source.set(job);
    size.set(job.properties);
    notes.set(job.properties.annotations);
  }

  async function refresh() {
    try {
      const [now, explanation] = await Promise.all([api.get(job.id), api.get(`${job.id}/why`)]);
      job = now;
      draw(explanation);
      await Promise.all([plots.refresh(), files.refresh(), logs.refresh(), refreshResources()]);
    } catch (error) {
      if (error.name !== 'ApiError') throw error;
      // While the server is unreachable, the last data stays.
      if (error.status) put(why, error.status === 404 ? 'This job was deleted.' : error.message);
      why.corroExplanation = null;
    }
  }
  await refresh();

  const resource = [parts.group, parts.workspaces, parts.experiments, parts.jobs].join('/').toLowerCase();
  const unsubscribe = refreshOn((event) => event.kind === 'job' && (event.resource ?? '').toLowerCase() === resource, refresh);
  // Curves grow between events; after the end they are read once more.
  let ticks = 0;
  const timer = setInterval(() => {
    if (document.hidden) return;
    ticks += 1;
    const { executionState: state } = job.properties;
    if (state === 'running' || (!ACTIVE.has(state) && !plots.ended && ticks % 2 === 0)) plots.refresh();
    // Others of the tabs need not know at once what the ranks do.
    if (tabs.isShown('ranks') || tabs.isShown('engine') || ticks % 5 === 0) refreshRanks();
    if (state === 'running' && ticks % 5 === 0) { files.refresh(); logs.refresh(); }
    if (state === 'running' && ticks % 10 === 0) refreshResources().catch(() => {});
    // The explanation contains durations and estimates.
    if (ACTIVE.has(state) && ticks % 15 === 0) refresh();
  }, 1000);
  return () => {
    unsubscribe();
    clearInterval(timer);
    engines.end();
    logs.end();
    resources.end();
    size.end();
    plots.end();
  };
}

// Queued, running, done, each with its time and duration.
function drawStages(list, properties) {
  const { executionState: state, executionInfo: info, creationTime, executionStateTransitionTime: moved } = properties;
  const started = info?.startTime;
  const ended = info?.endTime ?? (ACTIVE.has(state) ? null : moved);
  const isQueued = state === 'queued';
  const last = ACTIVE.has(state) ? (state === 'terminating' ? 'terminating' : 'none') : state;
  const entries = [
    { name: 'queued', now: isQueued, from: creationTime, to: isQueued ? null : started ?? ended, at: creationTime, verb: 'submitted' },
    { name: 'running', now: state === 'running' || state === 'terminating', next: !started || isQueued, from: isQueued ? null : started,
      to: ended, at: started, verb: 'started' },
    { name: last, now: !ACTIVE.has(state), next: ACTIVE.has(state), at: ended, verb: 'ended', code: info?.exitCode },
  ];
  keyed(list, entries, (stage) => entries.indexOf(stage), () => h('li', null, h('span', { class: 'state' }), h('p', null, h('b', null)),
    h('p')), (item, stage) => {
    const [name, long, when] = item.children;
    mark(item, 'data-stage', stage.next ? 'next' : stage.now ? 'now' : 'past');
    mark(item, 'aria-current', stage.now ? 'step' : null);
    setState(name, stage.name, stage.name === 'none' ? 'end' : stage.name);
    if (stage.from) setLasting(long.firstChild, stage.from, stage.to);
    else text(long.firstChild, stage.next || stage.code === undefined || stage.code === null ? '–' : `exit code ${stage.code}`);
    text(when, stage.next || !stage.at ? '' : `${stage.verb} ${clock(stage.at)}`);
    mark(when, 'title', stage.at ?? null);
  });
}

const KINDS = { queued: 'waiting', running: 'going', terminating: 'waiting', succeeded: 'good', failed: 'bad' };

function drawWhy(element, explanation, state) {
  mark(element, 'class', `note why ${KINDS[state] ?? ''}`);
  const content = JSON.stringify({ ...explanation, steps: null });
  if (element.corroExplanation === content) return;
  element.corroExplanation = content;
  put(element,
    explanation.sentences.map((line) => h('p', null, localTimes(line))),
    (explanation.causes ?? []).map((cause) => h('div', null, h('p', { class: 'subheading' }, cause.sentence),
      (cause.details ?? []).map((line) => h('p', { class: 'soft' }, line)),
      cause.lastOutput?.length ? h('pre', { tabindex: 0, 'aria-label': 'Last lines of stderr' },
        cause.lastOutput.join('\n')) : null,
      cause.docsKey ? h('p', null, h('a', { href: `/docs/users/troubleshooting.html#${cause.docsKey}` },
        'About this error')) : null)),
    explanation.remedies?.length ? [h('p', { class: 'subheading' }, state === 'failed' ? 'What to do' : 'Possible fixes'),
      h('ul', null, explanation.remedies.map((line) => h('li', null, markCommands(line))))] : null,
    (explanation.lostAttempts ?? []).map((line) => h('p', { class: 'soft' }, line)));
}

// Times in sentences of the server, as on all pages.
const localTimes = (line) => line.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, clock);

// Quoted commands are rendered as code for copying.
function markCommands(line) {
  return line.split(/('(?:corro|docker|chmod|dmesg|pip|apt|bash|python3|nvidia-smi|df|ss|ulimit|torchrun|mpirun|git|lscpu|uname)(?: [^']*)?')/).map((part) => (part.startsWith("'") ? h('code', null, part.slice(1, -1)) : part));
}

function drawFacts(list, properties, owner) {
  const { cluster, nodeCount, toolType, schedulingPriority, constraints, containerSettings } = properties;
  const processes = Object.entries(properties).find(([name, value]) => name.endsWith('Settings') && value?.processCount)?.[1].processCount;
  const entries = [
    ['Cluster', cluster && h('a', { href: pageOf(cluster.id) }, nameOf(cluster.id))],
    ['Nodes', nodesText(properties, processes)],
    ['Kind', toolType],
    ['Owner', owner],
    schedulingPriority !== 'normal' && ['Priority', schedulingPriority],
    containerSettings && ['Image', containerSettings.imageSourceRegistry.image],
    ['Limit', constraints?.maxWallClockTime && durationText(constraints.maxWallClockTime)],
  ];
  put(list, entries.filter((fact) => fact && fact[1]).map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

function nodesText({ nodeCount, elastic, sizeChanges, executionState }, processes) {
  if (elastic) {
    const now = executionState === 'running' ? sizeChanges?.at(-1)?.nodeCount ?? nodeCount : nodeCount;
    return `${now}, from ${elastic.minNodeCount} to ${elastic.maxNodeCount}`;
  }
  return processes && processes !== nodeCount ? `${nodeCount}, ${processes} processes` : nodeCount;
}

function durationText(text) {
  const match = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$/.exec(text);
  if (!match) return text;
  const [days, hours, minutes, seconds] = match.slice(1).map((part) => Number(part ?? 0));
  return short((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000);
}

const EVENTS = { submitted: 'Submitted', placed: 'Placed on nodes', terminating: 'Told to stop', succeeded: 'Succeeded',
  failed: 'Failed', requeued: 'Back in the queue', resized: 'Changed its size', shrinking: 'Gives nodes back', annotated: 'Notes changed', deleted: 'Deleted' };

function drawSteps(list, all) {
  const shown = all.filter((step) => step.what !== 'job.changed');
  keyed(list, shown, (step) => `${step.time} ${step.what}`, (step) => {
    const event = step.what.replace(/^job\./, '');
    const at = shown.indexOf(step);
    const since = at > 0 ? `+${short(Date.parse(step.time) - Date.parse(shown[at - 1].time))}` : '';
    return h('li', null, h('time', { datetime: step.time, title: step.time }, clock(step.time)),
      h('span', null, EVENTS[event] ?? event, h('span', { class: 'detail' }, ` ${detailText(step.detail)}`)), h('time', null, since));
  });
}

function detailText(detail) {
  if (!detail) return '';
  const { attempt, nodes, exitCode, code, message } = detail;
  const details = [attempt > 1 && `attempt ${attempt}`, nodes?.length && nodes.map((node) => node.nodeId ?? node).join(', '),
    Number.isInteger(exitCode) && `exit code ${exitCode}`, message ?? code];
  return details.filter(Boolean).join(' · ');
}
